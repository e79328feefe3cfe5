"""A runner that is killed, anywhere: nothing is left at the service, and the report is that of an undisturbed run."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.sandbox.local import bubblewrap
from tests.steps.sandbox.ags.runs import AGSRuns
from tests.steps.sandbox.e2b.limits import Limits
from tests.steps.sandbox.e2b.runs import E2BRuns
from tests.workflows.command import QUICK, begin, ids, kill, official, steps_of, swe_argo, wait_for

pytestmark = [
    pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe())),
    pytest.mark.xdist_group("recovery"),
]
WORDS = ["--attempts", "2", "-j", "4", "--counter-proof", "never"]
KILLS = int(os.environ.get("SWE_ARGO_TEST_KILLS", "3"))
"""How many random moments are tried at each service."""
Runs = E2BRuns | AGSRuns


@pytest.fixture(scope="module", params=["e2b", "ags"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("killed")
    runs = E2BRuns(folder) if request.param == "e2b" else AGSRuns(folder)
    if isinstance(runs, E2BRuns):
        runs.server.control.limits = Limits(5, concurrent=20)
    with runs.server.running():
        yield runs


def words_of(runs: Runs) -> list[str]:
    if isinstance(runs, E2BRuns):
        return [*WORDS, *runs.backend, *ids(*QUICK[:2]), "--e2b-creations-per-second", "5"]
    return [*WORDS, *runs.backend, *ids(*QUICK[:1])]


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> tuple[bytes, float]:
    """The official summary, and the seconds that the run took."""
    began = time.monotonic()
    result = swe_argo("run", "--store", runs.store, "--run-id", "r", *words_of(runs), env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    return official(runs.store, "r", "gold"), time.monotonic() - began


def die(runs: Runs, store: Path, at_s: float) -> None:
    """Begin the run, and kill the runner and, at odd moments, its steps with it."""
    runner = begin("run", "--store", str(store), "--run-id", "r", *words_of(runs), env=runs.env)
    time.sleep(at_s)
    steps = steps_of(str(store))
    for pid in (runner.pid, *(steps if int(at_s * 1000) % 2 else ())):
        with suppress(ProcessLookupError):
            kill(pid)
    runner.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in steps))


def resume(runs: Runs, store: Path, expected: bytes) -> None:
    result = swe_argo("run", "--store", str(store), "--run-id", "r", *words_of(runs), env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert official(str(store), "r", "gold") == expected
    assert len(list(store.glob("runs/r/units/*/*/grade.json"))) == (4 if isinstance(runs, E2BRuns) else 2)
    assert runs.orphans == []


def clean(runs: Runs) -> None:
    result = swe_argo("clean", "--yes", env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert runs.orphans == []


@pytest.mark.long
def test_clean_removes_a_runners_boxes(runs: Runs, tmp_path: Path, undisturbed: tuple[bytes, float]) -> None:
    runner = begin("run", "--store", str(tmp_path), "--run-id", "r", *words_of(runs), env=runs.env)
    wait_for(lambda: len(runs.orphans) >= 2)
    for pid in (*steps_of(str(tmp_path)), runner.pid):
        kill(pid)
    runner.communicate()
    assert runs.orphans
    clean(runs)
    resume(runs, tmp_path, undisturbed[0])


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_run_survives_kill_at_any_moment(runs: Runs, tmp_path: Path, undisturbed: tuple[bytes, float]) -> None:
    report, seconds = undisturbed
    chance = random.Random(16)
    for number in range(KILLS):
        store = tmp_path / f"store-{number}"
        die(runs, store, chance.uniform(0.1, seconds))
        if number % 2:
            clean(runs)
        resume(runs, store, report)
    if isinstance(runs, E2BRuns):
        assert runs.server.control.limits.refused["creation rate"] == 0
