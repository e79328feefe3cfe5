"""The transports that detached jobs and files in and out of a sandbox stand on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class ShortExec(Protocol):
    """The transport: runs ``script`` by /bin/sh as root and gives its exit code and its stdout.

    ``wait_s`` is how long the script itself may take its time. Every script given to it may run twice: repeating one
    whose connection was lost is the transport's work. Raises InfraError when the machine or the way to it is gone.
    """

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run one script."""


class StreamExec(Protocol):
    """Runs ``script`` by /bin/sh as root in a session of its own, and gives what it prints as it comes.

    It raises nothing: where something fails the pieces just end, and whether the script ran is unknown. It never runs
    twice, and goes on where nobody listens any more. A piece may be empty, so that who listens sees the clock.
    """

    def __call__(self, script: str) -> Generator[tuple[int, bytes], None, None]:
        """Pieces of stdout (0) and stderr (1), to be closed by who does not want more."""
