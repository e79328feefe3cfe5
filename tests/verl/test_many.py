"""Cost of many rollouts in one process of verl, and removal of the sandboxes of killed ones."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.host.folders import find_orphans
from swe_argo.workflows.local.recovery import remove_leftovers
from tests.paths import ROOT
from tests.rollouts.stores import plan_rows
from tests.verl.conftest import doomed_processes

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

import psutil  # type: ignore[import-untyped]  # noqa: E402

from tests.verl.loops import Loops, call, play  # noqa: E402

if TYPE_CHECKING:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

Sandboxes = Callable[[], list[str]]
INSTANCE = "mini__slugkit-2"
MANY = 64
TURNS = 50
TURN_CPU_MS = 10.0
MANY_GIB = 2.0
KILLS = int(os.environ.get("SWE_ARGO_VERL_KILLS", "50"))
RESULTS = ROOT / "verl-results.json"


def note(**figures: float) -> None:
    existing = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**existing, **figures}, indent=1) + "\n")


def test_turn_overhead_is_small(loops: Loops, rows: str) -> None:
    overrides = ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns=1000"]
    overrides += ["actor_rollout_ref.rollout.multi_turn.max_user_turns=1000"]
    long = Loops.like(loops, *overrides)
    costs = {}
    for turns in (2, 2 + TURNS):
        began = time.process_time()  # of all threads; the server's answers and the client of the sandbox are in it
        output = long.play(rows, INSTANCE, play(*[call("bash", command="true")] * turns))
        costs[turns] = time.process_time() - began
        assert output.num_turns == 2 * turns + 2
    cpu_ms = 1000 * (costs[2 + TURNS] - costs[2]) / TURNS
    note(turn_cpu_ms=round(cpu_ms, 2))
    assert cpu_ms < TURN_CPU_MS


def test_loop_runs_64_rollouts_at_a_time(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    counts: list[int] = []

    def answers(_prompt: str, turn: int) -> str:
        counts.append(len(sandboxes()))
        return call("bash", command=f"echo {turn} >> file; sleep 1") if turn < 2 else "Done."

    async def run_all() -> list[AgentLoopOutput]:
        return await asyncio.gather(*[loops.run(rows, INSTANCE, answers, graders=2) for _ in range(MANY)])

    before = memory_gib()
    with watched_memory() as peak:
        outputs = asyncio.run(run_all())
    assert [output.reward_score for output in outputs] == [0.0] * MANY
    assert max(counts) > MANY // 4
    note(many_gib=round(peak[0] - before, 3), many_sandboxes_at_once=max(counts))
    assert peak[0] - before < MANY_GIB


@contextmanager
def watched_memory() -> Iterator[list[float]]:
    """Yield the peak in GiB, as sampled so far."""
    peak, over = [memory_gib()], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            peak[0] = max(peak[0], memory_gib())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def memory_gib() -> float:
    """Return the memory of this process and its graders, without the programs in sandboxes."""
    size = psutil.Process().memory_full_info().pss
    for child in psutil.Process().children(recursive=True):
        try:
            if "swe_argo.steps.forking" in child.cmdline():
                size += child.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return float(size) / 2**30


@pytest.mark.timeout(3600)
def test_clean_removes_orphan_folders(isolation: None, tmp_path: Path) -> None:
    store = plan_rows(tmp_path / "store")
    orphans = []
    with doomed_processes(tmp_path, store) as kill_one:
        for _ in range(KILLS):
            before = orphan_folders()
            kill_one()
            assert not [
                folder for folder in before if folder.exists()
            ]  # a process removes the folders of its predecessor
            orphans += orphan_folders()
    assert orphans
    remove_leftovers()  # swe-argo clean
    wait_until_empty(orphan_folders)
    wait_until_empty(commands)


def orphan_folders() -> list[Path]:
    return [folder for folder in find_orphans() if (folder / "testbed").exists()]


def commands() -> list[int]:
    pids = []
    for process in psutil.process_iter():
        try:
            if "swe-argo-verl-killed" in " ".join(process.cmdline()):
                pids.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return pids


def wait_until_empty(look: Callable[[], list[int] | list[Path]]) -> None:
    """Wait, limited by the test's timeout."""
    while look():
        time.sleep(0.1)
