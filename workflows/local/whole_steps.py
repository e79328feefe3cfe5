"""The steps that work on a whole run or training (plan, report, learn), each as a process of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

from steps.contracts.chain import PLAN, REPORT
from steps.contracts.data import Plan
from steps.contracts.failure import FailureClass
from steps.contracts.programs import Program
from steps.contracts.record import key
from steps.contracts.run_spec import RunSpec
from steps.errors import EXIT_CONFIG, EXIT_INFRA, EXIT_OK, ConfigError, InfraError, StepError
from steps.store import open_store

Show = Callable[[str], None]
"""Is called with each line that says what is being done."""

WatchProcess = Callable[["subprocess.Popen[bytes]"], None]
"""Is called with a process that was begun, which may be killed."""


def make_plan(
    spec: RunSpec, env: Mapping[str, str] | None = None, show: Show | None = None, watch: WatchProcess | None = None
) -> Plan:
    """Run the plan step, ``env`` in its environment, and read what it wrote. ``watch`` is handed its process.

    Raises StepError, as plan did.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec.model_dump_json())
        file.flush()
        run_whole(PLAN, {"spec": file.name}, env=env, show=show, watch=watch)
    return Plan.from_bytes(open_store(spec.store).get(key(Plan, spec.run_id or "")))


def make_report(store_url: str, run_id: str, show: Show | None = None) -> None:
    """Run the report step. Raises StepError, as report did."""
    run_whole(REPORT, {"store": store_url, "run": run_id}, show=show)


NOTE = "note: "


def run_whole(
    program: Program,
    values: Mapping[str, object],
    *,
    env: Mapping[str, str] | None = None,
    show: Show | None = None,
    watch: WatchProcess | None = None,
    note: Callable[[str], None] | None = None,
) -> None:
    """Run a step that works on a whole run or training, as a process. Raises StepError, as the step did.

    ``note`` is called with what it says on stderr that a person should know (``note: ...``), where it succeeds.
    """
    command = [sys.executable, "-m", f"steps.{program.name}", *program.command_line(values)]
    environment = {**os.environ, **(env or {}), "PYTHONUTF8": "1"}
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as process:
            try:
                if watch:
                    watch(process)
                for line in process.stdout or ():
                    (show or str)(line.decode(errors="replace").rstrip())
                process.wait()
            except BaseException:  # Ctrl-C
                process.kill()
                raise
        log.seek(0)
        said = log.read().decode(errors="replace")
    if process.returncode != EXIT_OK:
        raise _failed(program.name, process.returncode, said.strip())
    notes = [each.removeprefix(NOTE) for each in said.splitlines() if each.startswith(NOTE)]
    if note:
        for text in notes:
            note(text)


def _failed(name: str, code: int, output: str) -> StepError:
    """What a step of the whole run (plan, report) said when it failed, as the error that it was there."""
    message = output or f"{name} ended with exit code {code}"
    if code == EXIT_CONFIG:
        return ConfigError(message)
    if code == EXIT_INFRA:
        return InfraError(FailureClass.ENGINE, message)
    number = -code if code < 0 else code - 128
    if number in list(signal.Signals):  # nobody's bug: told to end, or the machine was out of memory
        return InfraError(FailureClass.STEP_KILLED, f"{name} was killed by {signal.Signals(number).name}; run it again")
    return StepError(FailureClass.BUG, message)
