"""``swe-argo`` in a process of its own, in this process, and in part; and the stores and processes of its runs."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console, ConsoleDimensions

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import ConfirmationOutcome
from swe_argo.steps.errors import StepError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.settings import settings
from swe_argo.steps.store import Store, open_store
from tests.forked_program import run_program

# Quick instances of three repositories.
QUICK = ["mini__gridprint-1", "mini__ledgerlet-1", "mini__slugkit-1", "mini__slugkit-2"]
HONEST = (ConfirmationOutcome.CONFIRMED, ConfirmationOutcome.PARTLY, ConfirmationOutcome.UNAVAILABLE)
"""The outcomes that confirmations of the reference patches may have."""


def swe_argo(
    *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout_s: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return run_program("swe_argo.workflows.cli.main", words, cwd, os.environ | (env or {}), timeout_s)


@contextmanager
def environment(env: Mapping[str, str] | None) -> Iterator[None]:
    """Add variables to this process's environment, and read the settings anew."""
    with mock.patch.dict(os.environ, env or {}):
        settings.cache_clear()
        try:
            yield
        finally:
            settings.cache_clear()


def call(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: for refusals, lists and reports, which start no unit."""
    from swe_argo.workflows.cli.main import execute

    stdout, stderr = io.StringIO(), io.StringIO()
    arguments = mock.patch.object(sys, "argv", ["swe-argo", *words])
    size = ConsoleDimensions(int((env or {}).get("COLUMNS", 80)), 25)  # consoles read COLUMNS when they are imported
    terminal = mock.patch.object(Console, "size", size)
    with environment(env), arguments, terminal, redirect_stdout(stdout), redirect_stderr(stderr):
        code = execute()
    return subprocess.CompletedProcess(["swe-argo", *words], code, stdout.getvalue(), stderr.getvalue())


def plan_request(*words: str, env: Mapping[str, str] | None = None) -> Plan:
    """Plan the run of ``swe-argo run`` with these words in this process. Raises the StepError of the plan."""
    from swe_argo.steps.plan import plan as make_plan
    from swe_argo.workflows.cli import spec_sources
    from swe_argo.workflows.cli.arguments import translate_arguments

    with environment(env), redirect_stdout(io.StringIO()):
        flags = _run_command().make_context("run", translate_arguments(["run", *words])[1:]).params
        request = spec_sources.read_request(flags.pop("file"), flags, flags.pop("set_") or [])
        with environment(request.env):
            return make_plan(request.spec)


@cache
def _run_command() -> Any:
    from swe_argo.workflows.cli.main import load_command

    return load_command("run")


def plan_refusal(*words: str, env: Mapping[str, str] | None = None) -> StepError:
    """Return the error, in one line, for a request that ``swe-argo run`` or its plan refuses."""
    with pytest.raises(StepError) as refusal:
        plan_request(*words, env=env)
    assert "\n" not in str(refusal.value)
    return refusal.value


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
    """Stop a process meanwhile, so that it cannot end."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def ids(*instances: str) -> list[str]:
    """Return the flags that select these instances."""
    return [word for instance in instances for word in ("--instance", instance)]


def wait_for(true: Callable[[], Any]) -> None:
    """Wait until something holds, without a limit: the machine may be busy."""
    while not true():
        time.sleep(0.02)


def steps_of(folder: str) -> list[int]:
    """Return the process ids of running steps, of the runners that this process started with ``folder`` as a word."""
    runners = [pid for pid in children(os.getpid()) if folder.encode() in words_of(pid)]
    return [pid for runner in runners for root in _forked_by_root(runner) for pid in programs(root)]


def whole_steps_of(runner: int) -> list[int]:
    """Return the process ids of a runner's plan or report: those forked by its root, except the forker of steps."""
    return [pid for pid in _forked_by_root(runner) if _name(pid) != "swe_argo.steps.forking"]


def _forked_by_root(runner: int) -> list[int]:
    return [pid for root in programs(runner) for pid in programs(root)]


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def programs(pid: int) -> list[int]:
    """Return the children of a process that lead a session, as every forked program does."""
    pids: list[int] = []
    for child in children(pid):
        with suppress(ProcessLookupError):
            pids += [child] if os.getsid(child) == child else []
    return pids


def children(pid: int) -> list[int]:
    """Return the children of a process; some may be missing while others end."""
    pids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                pids += map(int, (task / "children").read_text().split())
    return pids


def family(root: int) -> list[int]:
    """Return a process and all that descend from it, the outermost first."""
    pids = [root]
    for pid in pids:
        pids += children(pid)
    return pids


def words_of(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill(pid: int) -> None:
    """Kill a process with SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def summary(store: str, run: str) -> Summary:
    """Return the figures of a run's report."""
    return Summary.from_bytes(open_store(store).get(key(Summary, run)))


def official(store: str, run: str, model: str) -> bytes:
    """Return the official summary of a run."""
    return open_store(store).get(f"runs/{run}/report/{model}.{run}.json")


def plan(store: str, run: str) -> Plan:
    """Return the plan of a run."""
    return Plan.from_bytes(open_store(store).get(key(Plan, run)))


def failures(store: Store, run: str) -> list[Failure]:
    """Return the failures of a run's tries."""
    names = [name for name in store.keys(f"runs/{run}/units/") if name.endswith(f"/{Failure.file}")]
    return [Failure.from_bytes(store.get(name)) for name in names]
