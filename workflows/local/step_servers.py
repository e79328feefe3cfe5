"""Step processes, each forked by a process that has imported the modules of its step (steps/forking.py)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import IO

from swe_argo.steps.contracts.chain import SOLVE, Step
from swe_argo.workflows.local.forked_programs import ForkedProgram, Forker, request, root


class ForkedStep:
    """A process of a step, which exits when this process dies (--tied: exit on EOF of stdin)."""

    def __init__(self, program: ForkedProgram, tie: int) -> None:
        self._program = program
        self._tie = tie
        self.signal = program.signal

    def wait(self) -> int:
        """Return the exit code of the program."""
        code = self._program.wait()
        os.close(self._tie)  # if the process lives after all, it ends now
        return code


class Forking:
    """Starter of step processes. Each step has one forking process, started with the step's first process."""

    def __init__(self, backend: str, solve_modules: Sequence[str] = ()) -> None:
        """Create it; ``solve_modules`` are imported for solve in addition to the step itself."""
        self._backend = backend
        self._solve_modules = solve_modules
        self._lock = threading.Lock()
        self._kept: dict[str, Forker] = {}

    def start(self, step: Step, flags: list[str], environment: dict[str, str], log: IO[bytes]) -> ForkedStep:
        """Start a process of ``step`` with its stderr in ``log``.

        Its stdin is a pipe whose other end only this process holds, so that it sees this process die.
        """
        asked = request(f"swe_argo.steps.{step.name}", flags, environment)
        its_end, tie = os.pipe()
        try:
            program = self._forker(step).start(asked, stdin=its_end, stderr=log.fileno())
        finally:
            os.close(its_end)
        return ForkedStep(program, tie)

    def close(self) -> None:
        """End the forking processes. Steps that they forked continue."""
        with self._lock:
            for forker in self._kept.values():
                forker.close()
            self._kept.clear()

    def _forker(self, step: Step) -> Forker:
        with self._lock:
            return self._kept.setdefault(step.name, Forker(lambda control: self._begin(step, control)))

    def _begin(self, step: Step, control: socket.socket) -> Callable[[], object]:
        modules = self._solve_modules if step is SOLVE else ()
        words = [step.name, self._backend, *modules]
        return root().start(request("swe_argo.steps.forking", words, os.environ), stdin=control.fileno()).wait
