"""Step processes, each forked by a process that has imported the modules of its step (steps/forking.py)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import IO

from swe_argo.steps.contracts.chain import SOLVE, Step
from swe_argo.workflows.local.forked_programs import ForkedProgram, Forker, get_forker, make_request


class ForkedStep:
    """A process of a step; it exits when this process dies, on EOF of its stdin (--tied)."""

    def __init__(self, program: ForkedProgram, write_end: int) -> None:
        self._program = program
        self._write_end = write_end
        self.signal = program.signal

    def wait(self) -> int:
        """Return the exit code of the program."""
        code = self._program.wait()
        os.close(self._write_end)  # if the process lives after all, it ends now
        return code


class Forking:
    """Starter of step processes. Each step has one forking process, started with the step's first process."""

    def __init__(self, backend: str, solve_modules: Sequence[str] = ()) -> None:
        """Create it; ``solve_modules`` are imported for solve in addition to the step itself."""
        self._backend = backend
        self._solve_modules = solve_modules
        self._lock = threading.Lock()
        self._forkers: dict[str, Forker] = {}

    def start(self, step: Step, flags: list[str], environment: dict[str, str], log: IO[bytes]) -> ForkedStep:
        """Start a process of ``step`` with its stderr in ``log``.

        Its stdin is a pipe whose other end only this process holds, so that it sees this process die.
        """
        program_request = make_request(f"swe_argo.steps.{step.name}", flags, environment)
        read_end, write_end = os.pipe()
        try:
            program = self._forker(step).start(program_request, stdin=read_end, stderr=log.fileno())
        finally:
            os.close(read_end)
        return ForkedStep(program, write_end)

    def close(self) -> None:
        """End the forking processes. Steps that they forked continue."""
        with self._lock:
            for forker in self._forkers.values():
                forker.close()
            self._forkers.clear()

    def _forker(self, step: Step) -> Forker:
        with self._lock:
            return self._forkers.setdefault(step.name, Forker(lambda control: self._begin(step, control)))

    def _begin(self, step: Step, control: socket.socket) -> Callable[[], object]:
        """Start the process that imports the step's modules and then forks its processes; return its wait()."""
        modules = self._solve_modules if step is SOLVE else ()
        words = [step.name, self._backend, *modules]
        return (
            get_forker().start(make_request("swe_argo.steps.forking", words, os.environ), stdin=control.fileno()).wait
        )
