"""Runs of the bundled dataset on the test servers of E2B and AGS have the right verdicts and leave nothing behind."""

from __future__ import annotations

import json
import os
import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.store import open_store
from tests import small_agent, solutions
from tests.cluster.disturbances import recordings
from tests.model_server import Answer, Call, call, model_server, play
from tests.model_server.scripts import by_text
from tests.steps.gateway.toolchain import needs_go
from tests.steps.sandbox.ags.lab import AGSRuns
from tests.steps.sandbox.e2b.lab import E2BRuns
from tests.steps.sandbox.e2b.server import Limits
from tests.workflows.command import QUICK, begin, ids, kill, official, steps_of, summary, swe_argo, wait_for
from tests.workflows.models.run import environment

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
Runs: TypeAlias = E2BRuns | AGSRuns
KINDS: dict[str, Callable[[Path], Runs]] = {"e2b": E2BRuns, "ags": AGSRuns}


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runs]:
    """The services of both providers, or of the test's parameter."""
    runs = KINDS[request.param](tmp_path)
    with runs.server.running():
        yield runs


both = pytest.mark.parametrize("runs", KINDS, indirect=True)
e2b = pytest.mark.parametrize("runs", ["e2b"], indirect=True)


def execute(runs: Runs, run_id: str, *words: str, env: dict[str, str] | None = None, timeout_s: float = 240) -> None:
    """Run to the end without failure or remains."""
    flags = ["--store", runs.store, "--run-id", run_id, "--agent-timeout", "600", *runs.backend]
    result = swe_argo("run", *flags, *words, env=runs.env | (env or {}), timeout_s=timeout_s)
    assert result.returncode == 0, result.stdout + result.stderr
    assert runs.server.machines.list_all() == []


def resolved(runs: Runs, run_id: str) -> int:
    return summary(runs.store, run_id).headline.resolved


def set_limits(runs: Runs, per_second: int, concurrent: int) -> None:
    if isinstance(runs, E2BRuns):
        runs.server.control.limits = Limits(per_second, concurrent)
    else:
        runs.server.control.quota = concurrent


def most_running(runs: Runs) -> int:
    if isinstance(runs, E2BRuns):
        return runs.server.control.limits.most_running
    return runs.server.control.most_at_once


@pytest.mark.slow
@both
def test_units_wait_for_free_places(runs: Runs) -> None:
    set_limits(runs, 50, 2)
    execute(runs, "r", "--agent", "gold", "--attempts", "2", "-j", "4", "--counter-proof", "never", *ids(*QUICK[:2]))
    assert resolved(runs, "r") == 4
    assert most_running(runs) == 2


@pytest.mark.long
@both
def test_run_has_the_verdicts_of_local(runs: Runs) -> None:
    """The model answers one instance right, and changes nothing in the other."""
    right, wrong = "mini__slugkit-2", "mini__gridprint-1"
    statement = solutions.rows()[wrong]["problem_statement"].partition("\n")[0]
    script = by_text({statement: play(call("finish", command="submit"))}, otherwise=solutions.solving("r2egym"))
    for run_id, backend in (("remote", []), ("local", ["--backend", "local"])):
        words = ["--agent", "r2egym", "--model", "openai/scripted", "--use-fn-calling", "true", "--allow-host"]
        with model_server(script) as models:
            execute(runs, run_id, *words, *ids(right, wrong), *backend, env=environment(models))
    [local, remote] = (Path(runs.store).glob(f"runs/{run_id}/report/*.{run_id}.json") for run_id in ("local", "remote"))
    assert next(local).read_bytes() == next(remote).read_bytes()
    assert resolved(runs, "remote") == 1
    assert runs.solve_starts() == ["image"] * 2
    if isinstance(runs, E2BRuns):
        bodies = [body for body in runs.server.control.creates if body["metadata"]["role"] == "solve"]
        assert not any(body["allow_internet_access"] for body in bodies)
    else:
        assert {body["ToolName"] for body in runs.server.control.starts} == {"swe-argo-sandbox", "swe-argo-public"}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("runs", "per_second", "concurrent"),
    [("e2b", 1, 20), ("e2b", 5, 100), ("ags", 0, 10)],
    indirect=["runs"],
    ids=["e2b hobby", "e2b pro", "ags"],
)
def test_many_units_keep_the_plan_limits(runs: Runs, per_second: int, concurrent: int) -> None:
    set_limits(runs, per_second, concurrent)
    words = ["--agent", "gold", "--attempts", "16", "-j", "64", "--counter-proof", "never", *ids(*QUICK)]
    if isinstance(runs, E2BRuns):
        words += ["--e2b-creations-per-second", str(per_second)]
    execute(runs, "many", *words, timeout_s=1200)
    records = list(Path(runs.store).glob("runs/many/units/*/*/grade.json"))
    assert len(records) == 16 * len(QUICK)
    assert all(json.loads(record.read_text())["resolved"] for record in records)
    assert most_running(runs) <= concurrent
    if isinstance(runs, E2BRuns):
        assert set(runs.server.control.limits.refused) <= {"concurrency"}


@pytest.mark.long
@pytest.mark.parametrize("runs", ["ags"], indirect=True)
def test_run_reports_a_full_account(runs: AGSRuns) -> None:
    runs.server.control.quota = 1
    blocker = runs.server.machines.create(image_by_id("mini")[QUICK[0]], 600, {}, network=False)
    words = ["--store", runs.store, "--run-id", "r", "--agent", "gold", "--counter-proof", "never", *ids(QUICK[0])]
    process, lines = begin("run", *words, *runs.backend, env=runs.env), []
    assert process.stdout is not None
    with process.stdout as printed:
        for line in printed:
            lines.append(line)
            if line.startswith("note: AGS in ap-shanghai has had no room for another sandbox for 1"):
                runs.server.machines.kill(blocker.number)
    assert process.wait() == 0, lines
    assert sum("waiting: 1 of the account's 1 sandboxes run" in line for line in lines) == 1
    assert resolved(runs, "r") == 1


@needs_go
@pytest.mark.long
@e2b
def test_agent_is_in_solve_templates(runs: E2BRuns) -> None:
    """Templates are built ahead, used by the run, listed, and kept while the run exists."""
    runs.install_gateway()
    chosen = ids("mini__slugkit-1", "mini__ledgerlet-1")
    command = shlex.join(["./small-agent", *small_agent.words()])
    agent = ["--agent-command", command, "--agent-folder", str(small_agent.FOLDER)]
    built = swe_argo("templates", "build", "mini", *chosen, *agent, env=runs.env)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "2 images of mini, each also with the files of small-agent" in built.stdout
    assert "4 templates: 2 built and 2 existed" in built.stdout
    plane = runs.server.control.templates
    with_files = {build.name for build in plane.builds}
    assert (len(with_files), plane.uploads) == (2, 1)

    words = [*agent, "--model", "openai/scripted", "--allow-host", "--no-e2b-build-templates", *chosen]
    script = play(Answer("I try.", calls=(Call("bash", {"command": "echo >new"}),)), Answer("That is all."))
    with model_server(script) as models:
        execute(runs, "program", *words, env=environment(models))
    used: dict[str, set[str]] = {"solve": set(), "grade": set()}
    for body in runs.server.control.creates:
        used[body["metadata"]["role"]].add(body["templateID"])
    assert used["solve"] == with_files
    assert len(used["grade"] - with_files) == len(used["grade"]) == 2
    assert plane.uploads == 1

    listed = swe_argo("templates", "list", "--store", runs.store, env=runs.env).stdout
    lines = {line.split()[0]: line for line in listed.splitlines()}
    assert all(lines[name].split()[-3:] == ["with", "small-agent", "program"] for name in with_files)
    swe_argo("templates", "prune", "--store", runs.store, "--yes", env=runs.env)
    assert set(runs.server.machines.templates) == with_files | used["grade"]


# -- attempts that start from one prepared sandbox


def outcomes(runs: Runs, run_id: str, instance: str, attempts: int) -> list[object]:
    """Return each attempt's verdict, patch and hidden history."""
    store = open_store(runs.store)
    results: list[object] = []
    for attempt in range(1, attempts + 1):
        grade = GradeRecord.from_bytes(store.get(key(GradeRecord, run_id, instance, attempt)))
        solved = SolveRecord.from_bytes(store.get(key(SolveRecord, run_id, instance, attempt)))
        patch = store.get(f"runs/{run_id}/units/{instance}/{attempt}/patch.diff")
        results.append((grade.outcome, grade.fail_to_pass, grade.pass_to_pass, patch, solved.history))
    return results


@pytest.mark.long
@both
@pytest.mark.parametrize("has_snapshots", [True, False], ids=["snapshots", "no snapshots"])
def test_group_is_prepared_once(runs: Runs, tmp_path: Path, has_snapshots: bool) -> None:
    instance, templates = QUICK[1], set(runs.server.machines.templates)
    recordings(tmp_path / "recorded", [instance])
    words = ["--trajectories", str(tmp_path / "recorded"), "-i", instance, "-j", "4", "--counter-proof", "never"]
    if not has_snapshots:
        runs.refuse_snapshots()
    execute(runs, "with", *words, "--attempts", "3", "--group-from-snapshot")
    assert Counter(runs.solve_starts()) == ({"image": 1, "snapshot": 2} if has_snapshots else {"image": 3})
    assert set(runs.server.machines.templates) == templates, "snapshots are removed at the end"
    assert list((tmp_path / "home" / "groups").iterdir()) == []
    execute(runs, "without", *words, "--attempts", "1")
    assert outcomes(runs, "with", instance, 3) == outcomes(runs, "without", instance, 1) * 3


# -- a runner that is killed

KILLS = int(os.environ.get("SWE_ARGO_TEST_KILLS", "3"))
"""Random moments that are tried at each service."""


def words_of(runs: Runs, store: Path) -> list[str]:
    chosen = ids(*QUICK[:2]) if isinstance(runs, E2BRuns) else ids(*QUICK[:1])
    flags = ["--store", str(store), "--run-id", "r", "--attempts", "2", "-j", "4", "--counter-proof", "never"]
    return ["run", *flags, *runs.backend, *chosen, "--e2b-creations-per-second", "5"]


def finish(runs: Runs, store: Path) -> bytes:
    """Start or continue the run; return the official summary."""
    result = swe_argo(*words_of(runs, store), env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert runs.server.machines.list_all() == []
    return official(str(store), "r", "gold")


def _have_ended(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def clean(runs: Runs) -> None:
    result = swe_argo("clean", "--yes", env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert runs.server.machines.list_all() == []


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.xdist_group("recovery")
@both
def test_run_survives_kill_at_any_moment(runs: Runs, tmp_path: Path) -> None:
    set_limits(runs, 5, 20)
    began = time.monotonic()
    expected, chance = finish(runs, tmp_path / "undisturbed"), random.Random(16)
    seconds = time.monotonic() - began
    for number in range(KILLS + 1):
        store = tmp_path / f"store-{number}"
        runner = begin(*words_of(runs, store), env=runs.env)
        if number == 0:  # clean removes the sandboxes of a killed runner
            wait_for(lambda: len(runs.server.machines.list_all()) >= 2)
        else:
            time.sleep(chance.uniform(0.1, seconds))
        steps = steps_of(str(store))
        for pid in (runner.pid, *(steps if number % 2 == 0 else ())):
            with suppress(ProcessLookupError):
                kill(pid)
        runner.communicate()
        wait_for(partial(_have_ended, steps))
        if number % 2 == 0:
            clean(runs)
        assert finish(runs, store) == expected
    if isinstance(runs, E2BRuns):
        assert runs.server.control.limits.refused["creation rate"] == 0
