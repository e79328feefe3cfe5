"""Runs on the test servers of E2B and AGS: attempts that start from a snapshot, and runners that are killed."""

from __future__ import annotations

import os
import random
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
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.store import open_store
from tests.cluster.disturbances import recordings
from tests.steps.sandbox.ags.lab import AGSRuns
from tests.steps.sandbox.e2b.lab import E2BRuns
from tests.steps.sandbox.e2b.server import CreationLimit
from tests.workflows.command import QUICK, begin, ids, kill, official, steps_of, summary, swe_argo, wait_for

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


def execute(runs: Runs, run_id: str, *words: str) -> None:
    """Run to the end without failure or remains."""
    flags = ["--store", runs.store, "--run-id", run_id, "--agent-timeout", "600", *runs.backend]
    result = swe_argo("run", *flags, *words, env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert runs.server.machines.list_all() == []


@pytest.mark.slow
@both
def test_units_wait_for_free_places(runs: Runs) -> None:
    runs.server.control.quota = 2
    execute(runs, "r", "--agent", "gold", "--attempts", "2", "-j", "4", "--counter-proof", "never", *ids(*QUICK[:2]))
    assert summary(runs.store, "r").headline.resolved == 4
    if isinstance(runs, E2BRuns):  # AGS is asked for its free places first
        assert runs.server.control.refused_for_quota > 0


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
    if isinstance(runs, E2BRuns):
        runs.server.control.creation_limit = CreationLimit(5)
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
        assert runs.server.control.creation_limit.refusals == 0
