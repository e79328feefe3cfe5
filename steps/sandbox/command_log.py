"""Logging of steps on stderr: with LOG_LEVEL=DEBUG, one line per command in a sandbox.

The model client (swe_argo.steps.models.client) logs one line per call.
"""

from __future__ import annotations

import logging
import sys
from typing import Unpack

from typing_extensions import override

from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox, StartedJob
from swe_argo.steps.sandbox.wrapper import ExecOptions, SandboxWrapper, StartOptions
from swe_argo.steps.settings import settings

LINE_WIDTH = 200
"""Maximum characters logged of a command's first line."""
log = logging.getLogger(__name__)


def set_up_logging() -> None:
    """Log to stderr at LOG_LEVEL; libraries log only warnings and errors, since some print requests with their keys."""
    level = settings().log_level
    line = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line)
    logging.basicConfig(level=max(logging.WARNING, logging.getLevelName(level)), handlers=[handler])
    logging.getLogger("swe_argo.steps").setLevel(level)


def with_command_log(box: Sandbox) -> Sandbox:
    """Return the sandbox, wrapped to log its commands if the level is DEBUG."""
    return _LoggedSandbox(box) if log.isEnabledFor(logging.DEBUG) else box


class _LoggedSandbox(SandboxWrapper):
    @override
    def exec(self, command: str, **options: Unpack[ExecOptions]) -> ExecResult:
        result = super().exec(command, **options)
        ending = "timed out" if result.timed_out else f"exit {result.exit_code}"
        size = len(result.stdout) + len(result.stderr)
        log.debug("command %r: %s, %d bytes, %.2f s", _first_line(command), ending, size, result.seconds)
        return result

    @override
    def start(self, command: str, **options: Unpack[StartOptions]) -> StartedJob:
        log.debug("command %r: started", _first_line(command))
        return super().start(command, **options)


def _first_line(command: str) -> str:
    return (command.strip().splitlines() or [""])[0][:LINE_WIDTH]
