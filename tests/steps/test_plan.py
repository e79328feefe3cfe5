"""``python -m swe_argo.steps.plan`` as an engine calls it: words in, parts of the plan and a count out."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.contracts.workflow_marks import Shard
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.dataset import describe_kinds
from swe_argo.steps.planning.growth import refuse_model
from swe_argo.steps.store import open_store
from swe_argo.steps.store.records import read_record
from swe_argo.steps.store.run_lock import DEAD_S, Lock
from swe_argo.workflows.local.recovery import is_same_run
from tests.forked_program import run_program
from tests.paths import ROOT

RUN, ID = "planned", "mini__plainconf-1"


class Desk:
    """A store, and a folder for what plan says."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = folder / "store", folder / "out"

    def plan(self, *flags: str, run: str = RUN) -> subprocess.CompletedProcess[str]:
        fixed = [f"--run-id={run}", f"--store={self.store}", f"--out={self.out}"]
        return run_program("swe_argo.steps.plan", [*flags, *fixed], ROOT)

    def read_plan(self) -> Plan:
        return Plan.from_bytes(open_store(str(self.store)).get(key(Plan, RUN)))

    def shard(self, number: int) -> Shard:
        return Shard.from_bytes(open_store(str(self.store)).get(key(Shard, RUN, name=f"{number:05d}")))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_plan_flags_override_spec(desk: Desk) -> None:
    result = desk.plan(
        *("--k=5", "--attempts=2", "--model=", "--agent=gold"),
        '--spec-text={"select": {"k": 2}, "agent": {"name": "idle"}, "run_id": "another"}',
    )
    assert result.returncode == 0, result.stderr
    plan = desk.read_plan()
    assert (plan.run_id, len(plan.units), {unit.begins for unit in plan.units}) == (RUN, 4, {"solve"})


def test_predictions_choose_agent(desk: Desk, tmp_path: Path) -> None:
    preds = tmp_path / "preds.jsonl"
    preds.write_text('{"instance_id": "mini__gridprint-1", "model_name_or_path": "m", "model_patch": "x"}\n')
    result = desk.plan("--agent=gold", f'--spec-text=agent.predictions = "{preds}"')
    assert result.returncode == 0, result.stderr
    run = RunFile.from_bytes(open_store(str(desk.store)).get(key(RunFile, RUN)))
    assert (run.spec.agent.name, run.model) == ("given", "m")


def test_is_same_run_compares_times(tmp_path: Path) -> None:
    runs = []
    for desk in (Desk(tmp_path / "here"), Desk(tmp_path / "there")):
        assert desk.plan("--k=1").returncode == 0
        runs.append(read_record(open_store(str(desk.store)), RunFile, RUN))
    assert is_same_run(runs[0], runs[0])
    assert not is_same_run(*runs), "planned within a second, as likely as not"


def test_plan_refuses_active_run(desk: Desk) -> None:
    store = open_store(str(desk.store), create=True)
    lock = Lock(token="t", process="elsewhere:1:1", pid=7, host="elsewhere", alive_at=time.time())
    store.put(key(Lock, RUN), lock.to_bytes())
    result = desk.plan("--k=1")
    assert result.returncode == 64
    assert f"run_id: run '{RUN}' is being worked on by process 7 on elsewhere" in result.stderr
    assert store.keys("runs/") == [key(Lock, RUN)]
    silent = lock.model_copy(update={"alive_at": time.time() - DEAD_S - 1})
    store.put(key(Lock, RUN), silent.to_bytes())
    assert desk.plan("--k=1").returncode == 0


def test_plan_refuses_older_run(desk: Desk) -> None:
    open_store(str(desk.store), create=True).put(key(RunFile, RUN), b"{}")
    result = desk.plan("--k=1")
    assert result.returncode == 64
    assert result.stderr.count("\n") == 1
    assert "run.json is broken or from another version of swe-argo" in result.stderr


def test_plan_splits_units_into_shards(desk: Desk) -> None:
    assert desk.plan("--shard-size=5").returncode == 0
    assert (desk.out / "shards").read_text() == "3"
    assert (desk.out / "outcome").read_text() == "12 units to do"
    parts = [desk.shard(number).units for number in range(3)]
    assert [len(part) for part in parts] == [5, 5, 2]
    planned = [(unit.instance_id, unit.attempt, unit.begins) for unit in desk.read_plan().units]
    assert [(unit.id, unit.attempt, unit.begins) for part in parts for unit in part] == planned


def test_resumed_plan_has_missing_units(desk: Desk) -> None:
    assert desk.plan("--shard-size=5").returncode == 0
    store = open_store(str(desk.store))
    graded = [unit.instance_id for unit in desk.read_plan().units][:9]
    store.put_many({key(GradeRecord, RUN, instance_id, 1): b"{}" for instance_id in graded})
    assert desk.plan("--shard-size=5").returncode == 0
    assert (desk.out / "shards").read_text() == "1"
    assert (desk.out / "outcome").read_text() == "3 units to do, 9 done before"
    assert store.keys(f"runs/{RUN}/shards/") == [key(Shard, RUN, name="00000")]
    assert not {unit.id for unit in desk.shard(0).units} & set(graded)


def test_plan_keeps_tags_until_replaced(desk: Desk) -> None:
    def tags() -> list[str]:
        return read_record(open_store(str(desk.store)), RunFile, RUN).spec.tags

    assert desk.plan('--spec-text=tags = ["a", "b"]').returncode == 0
    assert tags() == ["a", "b"]
    assert desk.plan().returncode == 0
    assert tags() == ["a", "b"]
    assert desk.plan('--spec-text=tags = ["c"]').returncode == 0
    assert tags() == ["c"]
    wrong = desk.plan('--spec-text=tags = ["c d"]')
    assert (wrong.returncode, "tags: 'c d' is not a valid tag" in wrong.stderr) == (64, True)
    assert tags() == ["c"]


def test_grown_plan_has_only_new_units(desk: Desk) -> None:
    """As the pipeline plans: parameters, and the rest of the spec as text."""
    assert desk.plan("--shard-size=5", "--k=2", "--attempts=1").returncode == 0
    before = [unit.instance_id for unit in desk.read_plan().units]
    open_store(str(desk.store)).put_many({key(GradeRecord, RUN, instance_id, 1): b"{}" for instance_id in before})
    grown = desk.plan("--shard-size=5", "--k=4", "--attempts=2")
    assert grown.returncode == 0, grown.stderr
    assert "note: run planned grows: 2 -> 4 instances, 1 -> 2 attempts; existing results are kept" in grown.stderr
    assert (desk.out / "outcome").read_text() == "6 units to do, 2 done before"
    assert [(unit.instance_id, unit.attempt) for unit in desk.read_plan().units if unit.begins == "none"] == [
        (name, 1) for name in before
    ]
    parts = [unit for number in range(2) for unit in desk.shard(number).units]
    assert len(parts) == 6
    assert not {(unit.id, unit.attempt) for unit in parts} & {(instance_id, 1) for instance_id in before}
    less = desk.plan("--shard-size=5", "--k=1", "--attempts=2")
    assert less.returncode == 64
    assert "the spec no longer selects" in less.stderr


def test_finished_plan_has_no_shards(desk: Desk) -> None:
    assert desk.plan("--shard-size=5", "--spec-text=select.k = 1").returncode == 0
    open_store(str(desk.store)).put(key(GradeRecord, RUN, desk.read_plan().units[0].instance_id, 1), b"{}")
    assert desk.plan("--shard-size=5", "--spec-text=select.k = 1").returncode == 0
    assert (desk.out / "shards").read_text() == "0"


def test_plan_refuses_high_timeouts(desk: Desk) -> None:
    result = desk.plan("--spec-text=grading.timeout_s = 2000", "--at-most=grading.timeout_s=1800")
    assert result.returncode == 64
    assert result.stderr == "grading.timeout_s: 2000 is more than this pipeline's limit of 1800\n"
    assert not desk.store.exists()


def test_plan_caps_default_agent_timeout(desk: Desk) -> None:
    limited = "--at-most=agent.timeout_s=60"
    assert desk.plan('--spec-text=agent = {name = "idle", timeout_s = 120}', limited).returncode == 64
    assert desk.plan('--spec-text=agent.name = "idle"', limited).returncode == 0
    assert read_record(open_store(str(desk.store)), RunFile, RUN).spec.agent.timeout_s == 60


NAMES = {
    "no end": "m" * 201,
    "200 bytes that are more": "é" * 101,
    "an escape": "m\x1b[31mred",
    "a line": "two\nlines",
    "NUL": "m\0n",
    "half a pair": "m\ud800n",
    "a hidden file": ".m",
    "an option": "-m",
    "blanks": " m ",
    "another system's path": "a\\b",
    "backwards": "m\u202ecod.exe",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_bad_model_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        refuse_model(RunSpec(run_id="r"), name)
    assert refusal.value.field == "agent.model"
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 500


def test_plan_accepts_other_model_name(desk: Desk, tmp_path: Path) -> None:
    predictions = tmp_path / "preds.json"
    predictions.write_text(json.dumps([{"instance_id": ID, "model_name_or_path": "m" * 3000, "model_patch": ""}]))
    run_spec = {"agent": {"name": "given", "predictions": str(predictions)}, "select": {"instance_ids": [ID]}}
    refused = desk.plan(f"--spec-text={json.dumps(run_spec)}")
    assert "give another name with --model NAME" in refused.stderr
    assert desk.plan(f"--spec-text={json.dumps(run_spec)}", "--set=agent.model=good").returncode == 0


def test_model_name_is_bounded_with_run_id() -> None:
    with pytest.raises(ConfigError, match="of more than 255 bytes"):
        refuse_model(RunSpec(run_id="r" * 63), "m" * 200)
    for name in ("Qwen/Qwen3-Coder-480B", "qwen2.5-coder:7b", "模型 1", "a" * 200):
        refuse_model(RunSpec(run_id="r"), name)


def test_describe_kinds_groups_reasons() -> None:
    reasons = {f"a__b-{number}": f"a__b-{number}: log_parser 'x' is not supported" for number in range(3)}
    line = describe_kinds(reasons | {"a__b-9": "a__b-9: patch is empty"})
    assert line == "3 (a__b-0, ...): log_parser 'x' is not supported; 1 (a__b-9): patch is empty"
    line = describe_kinds({f"a__b-{number}": f"reason {number} {'x' * 500}" for number in range(1000)})
    assert line.endswith("; 997 for 997 other reasons")
    assert len(line) < 600
