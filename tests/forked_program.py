"""Programs of the project, each in a process of its own, forked from one that has imported what they need.

Importing takes them longer than what most tests ask of them. What forks them is steps/forking.py: it has one thread,
it has imported and done nothing else, and what it forks ends as an interpreter does. There is one for each process
that runs tests, and it ends with that. tests/test_forked_program.py compares a program that was forked with one that
was started.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from steps.forking import ForkServer, Request
from tests.paths import ROOT

IMPORTED = (  # nothing that is a program itself: runpy warns of one that is imported already
    "workflows.cli.session",
    *(f"workflows.cli.{name}" for name in ("ags_commands", "argo_commands", "run_commands", "template_commands")),
    *(f"steps.planning.{name}" for name in ("resolve", "write", "requested_spec")),
    "steps.agents.solving",
    "steps.grading.counter_proof",
    "steps.sandbox.local",
    "steps.reports.write",
)
EARLY = (
    *("PYTHON", "_PYTHON", "LANG", "LC_", "PYDANTIC_", "TYPER_", "TORNADO_"),
    *("COLUMNS", "LINES", "TERM", "TTY_", "NO_COLOR", "FORCE_COLOR"),
)
"""How names of variables begin that are read while a process starts and imports, too early for one that is forked."""
_AT_FIRST = dict(os.environ)  # before any test sets something
_lock = threading.Lock()


def run_program(
    module: str,
    words: Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 240,
) -> subprocess.CompletedProcess[str]:
    """``python -m module words`` to its end. Raises subprocess.TimeoutExpired past ``timeout_s``, when it is killed.

    ``env``: all of its environment; ours by default. It is started, not forked, where that could make a difference.
    """
    environment = dict(os.environ if env is None else env)
    if early_variables(environment) != early_variables():
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, timeout=timeout_s, env=environment
        )
    with TemporaryDirectory() as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        line, its_line = socket.socketpair()
        with its_line, Path(os.devnull).open("rb") as nothing, stderr.open("ab") as errors, _lock:
            socket.send_fds(_server(), [b"\0"], [its_line.fileno(), nothing.fileno(), errors.fileno()])
        with line:
            line.sendall(Request([str(cwd or Path.cwd()), str(stdout), module, *words], environment).to_bytes())
            line.settimeout(timeout_s)
            try:
                code = int(line.recv(16))
            except BaseException as error:
                line.send(bytes([signal.SIGKILL]))
                if isinstance(error, TimeoutError):
                    raise subprocess.TimeoutExpired([module, *words], timeout_s) from None
                raise
        return subprocess.CompletedProcess([module, *words], code, stdout.read_text(), stderr.read_text())


def early_variables(environment: Mapping[str, str] = _AT_FIRST) -> dict[str, str]:
    """Those of an environment that decide whether a program is forked: the same as here, and it is."""
    return {name: value for name, value in environment.items() if name.startswith(EARLY)}


@cache
def _server() -> socket.socket:
    control, its = socket.socketpair()
    with its:
        command = [sys.executable, "-m", __name__]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=its.fileno(), stdout=subprocess.DEVNULL, env=_AT_FIRST, start_new_session=True
        )
    atexit.register(process.wait)
    atexit.register(control.close)
    return control


def main() -> None:
    """Fork until nobody asks any more. In a process that was forked, be the program."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    asked = ForkServer(socket.socket(fileno=0)).serve()
    if asked is None:
        return
    cwd, stdout, module, *words = asked
    file = os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, sys.stdout.fileno())
    os.close(file)
    os.chdir(cwd)
    sys.path[0] = cwd
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
