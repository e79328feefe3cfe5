"""The transports on which detached jobs and file transfers are built."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class ShortExec(Protocol):
    """A transport that runs ``script`` by /bin/sh as root and returns its exit code and its stdout.

    ``wait_s`` is how long the script itself may wait. Every script may run twice: the transport repeats one whose
    connection was lost. Raises InfraError if the machine or the connection to it is gone.
    """

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run one script."""


class StreamExec(Protocol):
    """A transport that runs ``script`` by /bin/sh as root in a session of its own, and yields its output as it comes.

    It raises nothing: on failure the pieces just end, and whether the script ran is unknown. It never runs a script
    twice, and the script runs on if nobody reads. A piece may be empty, so that the reader can check the clock.
    """

    def __call__(self, script: str) -> Generator[tuple[int, bytes], None, None]:
        """Yield pieces of stdout (0) and stderr (1); close the generator to stop reading."""
