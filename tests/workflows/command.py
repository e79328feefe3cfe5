"""``swe-argo`` as a person starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import ConfirmationOutcome
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store, open_store
from tests.forked_program import run_program

# One instance of each kind that matters here: quick ones, over three repositories.
QUICK = ["mini__gridprint-1", "mini__ledgerlet-1", "mini__slugkit-1", "mini__slugkit-2"]
HONEST = (ConfirmationOutcome.CONFIRMED, ConfirmationOutcome.PARTLY, ConfirmationOutcome.UNAVAILABLE)
"""The outcomes that confirmations of the reference patches may have."""


def swe_argo(
    *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout_s: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return run_program("swe_argo.workflows.cli.main", words, cwd, os.environ | (env or {}), timeout_s)


def begin(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command and leave it running, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "swe_argo.workflows.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | (env or {}),
    )


@contextmanager
def paused(process: subprocess.Popen[str]) -> Iterator[None]:
    """It stands still meanwhile, so that it cannot have ended afterwards."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def ids(*instances: str) -> list[str]:
    """Flags that choose these instances."""
    return [word for instance in instances for word in ("--instance", instance)]


def wait_for(true: Callable[[], Any]) -> None:
    """Wait until something holds, for as long as the test may take: a machine may be busy with other things."""
    while not true():
        time.sleep(0.02)


def steps_of(folder: str) -> list[int]:
    """Process ids of the steps under way of the runners that this process began with ``folder`` among their words."""
    runners = [pid for pid in children(os.getpid()) if folder.encode() in words_of(pid)]
    return [pid for runner in runners for root in _forked_by_root(runner) for pid in programs(root)]


def whole_steps_of(runner: int) -> list[int]:
    """Process ids of its plan or report: what its root has forked, but for what forks its steps."""
    return [pid for pid in _forked_by_root(runner) if _name(pid) != "swe_argo.steps.forking"]


def _forked_by_root(runner: int) -> list[int]:
    return [pid for root in programs(runner) for pid in programs(root)]


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def programs(pid: int) -> list[int]:
    """Those of the children of a process that lead a session of their own, as each program does that is forked."""
    pids: list[int] = []
    for child in children(pid):
        with suppress(ProcessLookupError):
            pids += [child] if os.getsid(child) == child else []
    return pids


def children(pid: int) -> list[int]:
    """Process ids of the children of a process; some may be left out while others go."""
    pids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                pids += map(int, (task / "children").read_text().split())
    return pids


def words_of(pid: int) -> bytes:
    """The command line of a process; empty where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


def summary(store: str, run: str) -> Summary:
    """The figures of a run's report."""
    return Summary.from_bytes(open_store(store).get(key(Summary, run)))


def official(store: str, run: str, model: str) -> bytes:
    """The official summary of a run, its own name taken out."""
    return open_store(store).get(f"runs/{run}/report/{model}.{run}.json")


def plan(store: str, run: str) -> Plan:
    """The plan of a run."""
    return Plan.from_bytes(open_store(store).get(key(Plan, run)))


def failures(store: Store, run: str) -> list[Failure]:
    """What the failed tries of a run left."""
    names = [name for name in store.keys(f"runs/{run}/units/") if name.endswith(f"/{Failure.file}")]
    return [Failure.from_bytes(store.get(name)) for name in names]
