from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome
from swe_argo.steps.contracts.workflow_marks import Shard
from swe_argo.steps.planning.redo import archive, plan_redo
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.records import read_record
from tests.forked_program import early_variables, run_program
from tests.paths import ROOT
from tests.steps.argo.api_server import Api, serving
from tests.steps.argo.recorded import node, workflow
from tests.steps.argo.test_shards import pod, shard
from tests.steps.reports.synthetic import Synthetic

RUN, PARENT = "synthetic", "evaluate-1"
CHILD = f"{PARENT}-s00000"
SUMMARY = f"runs/{RUN}/report/summary.json"


@dataclass
class World:
    """A store with a run in it, and the cluster that the run was on."""

    api: Api
    store: Store
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    """Of the pod, beside what every pod has."""

    def finalize(self, *more: str, started: bool = False) -> subprocess.CompletedProcess[str]:
        """The step; ``started``: as Argo starts it, else forked."""
        words = ["--store", self.store.url, "--run", RUN, "--workflow", PARENT, "--out", str(self.folder / "out")]
        env = {"PATH": "/usr/bin:/bin", "KUBECONFIG": str(self.api.kubeconfig(self.folder)), "HOME": str(self.folder)}
        if not started:
            return run_program(
                "swe_argo.steps.finalize", [*words, *more], ROOT, {**early_variables(), **env, **self.variables}
            )
        command = [sys.executable, "-m", "swe_argo.steps.finalize", *words, *more]
        return subprocess.run(
            command, cwd=ROOT, env={**env, **self.variables}, capture_output=True, text=True, timeout=120, check=False
        )

    def out(self, name: str) -> str:
        return (self.folder / "out" / name).read_text("utf-8")

    def summary(self) -> Summary:
        return Summary.from_bytes(self.store.get(SUMMARY))

    def failures(self, unit: Unit) -> list[Failure]:
        folder = f"runs/{RUN}/units/{unit.instance_id}/{unit.attempt}/tries/"
        return [Failure.from_bytes(self.store.get(name)) for name in self.store.keys(folder) if "failure.json" in name]

    def wrote(self) -> int:
        """When the report was written, by the file that comes last."""
        return (Path(self.store.url) / SUMMARY).stat().st_mtime_ns


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving() as api:
        yield World(api, open_store(str(tmp_path / "store"), create=True), tmp_path)


def planned(world: World, **mix: float) -> Plan:
    """A run of six units; one shard."""
    plan = Synthetic(instances=6, mix=mix or {"not_run": 1}).write(world.store)
    world.store.put(key(Shard, RUN, name=CHILD), Shard.of(plan.units).to_bytes())
    return plan


def ended(phase: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    """The run's one shard, with these nodes."""
    workflow_body = shard(0, phase, run=RUN, parent=PARENT)
    workflow_body["metadata"]["labels"]["swe-argo/shard"] = "00000"
    workflow_body["status"]["nodes"] = {
        f"{CHILD}-{number}": {**fields, "id": f"{CHILD}-{number}"} for number, fields in enumerate(nodes)
    }
    return workflow_body


def of(unit: Unit, case: str, **changes: Any) -> dict[str, Any]:
    """A recorded node, of this unit."""
    parameters = {"id": unit.instance_id, "attempt": str(unit.attempt)}
    return {**node(case), "inputs": {"parameters": [{"name": k, "value": v} for k, v in parameters.items()]}, **changes}


def test_finalize_after_success_is_quiet(world: World) -> None:
    planned(world, resolved=1)
    world.api.add(ended("Succeeded"))
    write_report(world.store, RUN)
    before = world.wrote()
    result = world.finalize(started=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert world.wrote() == before
    assert [how for how, *_ in world.api.requests] == ["GET"] * 4
    assert world.out("outcome") == "resolved 6 of 6"
    assert world.out("report.html") == world.store.get(f"runs/{RUN}/report/report.html").decode()


def test_finalize_writes_missing_report(world: World) -> None:
    planned(world, resolved=1, unresolved=1)
    assert world.finalize().returncode == 0
    assert world.out("outcome") == f"resolved {world.summary().headline.resolved} of 6"


def test_finalize_follows_redo(world: World) -> None:
    plan = planned(world, unresolved=1)
    write_report(world.store, RUN)
    again = plan.units[0]
    spec = read_record(world.store, RunFile, RUN).spec.model_copy(update={"run_id": RUN, "redo": [again.instance_id]})
    name = key(GradeRecord, RUN, again.instance_id, again.attempt)
    grade = GradeRecord.from_bytes(world.store.get(name))
    rows = [{"instance_id": unit.instance_id} for unit in plan.units]
    archive(world.store, plan_redo(spec, rows, world.store, set(world.store.keys(f"runs/{RUN}/units/"))))
    world.store.put(name, grade.model_copy(update={"outcome": Outcome.RESOLVED, "resolved": True}).to_bytes())
    assert world.finalize().returncode == 0
    assert world.out("outcome") == "resolved 1 of 6", "there are as many verdicts as in the report before"


def test_finalize_stops_and_records(world: World) -> None:
    plan = planned(world)
    work, before, mute, never = plan.units[:4]
    world.api.add(
        ended("Running", of(work, "stopped-at-work"), of(before, "stopped-before"), of(mute, "oom")),
        pod("step", "solve", run=RUN, workflow=CHILD),
        {"kind": "Pod", "metadata": {"name": "sb-1", "labels": {"swe-argo/role": "solve", "swe-argo/run": RUN}}},
        {"kind": "Pod", "metadata": {"name": "sb-2", "labels": {"swe-argo/role": "solve", "swe-argo/run": "other"}}},
    )
    result = world.finalize()
    assert result.returncode == 0, result.stderr
    assert world.api.objects["workflows", CHILD]["spec"]["shutdown"] == "Stop"
    assert world.api.names("pods") == ["sb-2", "step"]
    assert result.stderr == f"stopped: {CHILD}\nremoved: sb-1\n"
    assert [failure.failure_class for failure in world.failures(work)] == [FailureClass.STOPPED]
    assert [failure.failure_class for failure in world.failures(mute)] == [FailureClass.OUT_OF_MEMORY]
    assert world.failures(before) == world.failures(never) == []
    summary = world.summary()
    assert (summary.headline.total, summary.headline.graded, summary.complete) == (6, 0, False)
    assert (summary.outcomes["failed"], summary.outcomes["not_run"]) == (1, 5)
    assert "5 units not run: the run is not finished." in summary.doubts
    assert world.out("outcome") == "INVALID, no score: 6 of 6 units have no verdict."


def test_finalize_is_idempotent(world: World) -> None:
    plan = planned(world)
    world.api.add(ended("Failed", of(plan.units[0], "forced")))
    assert world.finalize().returncode == 0
    names, before = world.store.keys(f"runs/{RUN}/"), world.wrote()
    assert world.finalize().returncode == 0
    assert (world.store.keys(f"runs/{RUN}/"), world.wrote()) == (names, before)


def test_finalize_resumes_before_report(world: World) -> None:
    plan = planned(world)
    world.api.add(ended("Failed", of(plan.units[0], "forced")))
    write_report(world.store, RUN)
    old = world.summary()
    assert world.finalize().returncode == 0
    world.store.put(SUMMARY, old.to_bytes())  # as if the report had not been written any more
    assert world.finalize().returncode == 0
    assert world.summary().outcomes["failed"] == 1


def test_finalize_keeps_own_failures(world: World) -> None:
    plan = planned(world, resolved=1)
    graded, own = plan.units[:2]
    world.store.delete_many([f"runs/{RUN}/units/{own.instance_id}/1/grade.json"])
    tries = Failure(
        step="solve", instance_id=own.instance_id, attempt=1, failure_class=FailureClass.EVICTED, reason="mine",
        exit_code=75, occurred_at="2026-11-22T03:00:00+00:00",
    )  # fmt: skip
    world.store.put(key(Failure, RUN, own.instance_id, 1, f"{CHILD}-solve-1"), tries.to_bytes())
    world.api.add(ended("Failed", of(graded, "forced"), of(own, "says-75")))
    assert world.finalize().returncode == 0
    assert world.failures(graded) == []
    assert [failure.reason for failure in world.failures(own)] == ["mine"]


def test_finalize_records_unstarted(world: World) -> None:
    plan = planned(world)
    refused = workflow("shard_without_template", shard="00000", run=RUN, parent=PARENT)
    refused["metadata"]["name"] = CHILD
    world.api.add(refused)
    assert world.finalize().returncode == 0
    assert world.summary().failures == {"config": len(plan.units)}
    failure = world.failures(plan.units[0])[0]
    assert failure.step == Stage.SOLVE
    assert failure.reason.startswith(
        "its shard never started it: the Workflow evaluate-1-s00000 failed: workflowtemplates"
    )


def test_finalize_records_uncreated(world: World) -> None:
    planned(world)
    own = workflow("stopped_parent")
    own["metadata"]["name"] = PARENT
    child = next(item for item in own["status"]["nodes"].values() if "forbidden" in item.get("message", ""))
    child["inputs"]["parameters"][0]["value"] = "00000"
    own["status"]["nodes"] = {child["id"]: child}
    world.api.add(own)
    assert world.finalize().returncode == 0
    assert world.summary().failures == {"admission": 6}


def test_finalize_accepts_unplanned_run(world: World) -> None:
    result = world.finalize()
    assert (result.returncode, result.stderr) == (0, f"run {RUN} was never planned: there is nothing to report\n")
    assert world.store.keys("runs/") == []
    assert world.out("outcome") == "not planned"


@pytest.mark.long  # a right that is missing is asked for again for a while
def test_finalize_reports_without_rights(world: World) -> None:
    planned(world, resolved=1)
    world.api.forbidden = ("pods",)
    result = world.finalize()
    assert result.returncode == 64
    assert "may not list pods in namespace evals" in result.stderr
    assert world.summary().complete


def test_finalize_names_unreadable_nodes(world: World) -> None:
    plan = planned(world)
    hidden = shard(1, "Failed", run=RUN, parent=PARENT)
    hidden["status"]["offloadNodeStatusVersion"] = "fnv:1"
    world.api.add(hidden, ended("Failed", of(plan.units[0], "oom")))
    result = world.finalize()
    assert result.returncode == 75
    assert f"the nodes of Workflow {PARENT}-s00001 are only in Argo's database" in result.stderr
    assert world.summary().failures == {"out_of_memory": 1}


def test_finalize_ends_within_its_time(world: World) -> None:
    planned(world, resolved=1)
    world.api.hang_s = 600  # longer than the test would wait for the process
    result = world.finalize("--within", "3", started=True)
    assert (result.returncode, result.stderr) == (75, "the clean-up did not end within 3 s\n")
