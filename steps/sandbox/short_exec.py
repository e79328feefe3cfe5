"""Transports of scripts, for detached jobs and file transfers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class ShortExec(Protocol):
    """A transport that runs ``script`` by /bin/sh as root, and returns its exit code and stdout.

    ``wait_s``: how long the script itself may wait. Scripts must be idempotent: the transport retries after a lost
    connection. Raises InfraError if the machine or the connection to it is gone.
    """

    def __call__(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        """Run one script."""


class StreamExec(Protocol):
    """A transport that runs ``script`` by /bin/sh as root in its own session, and streams its output.

    It raises nothing: after a failure the pieces end, and it is unknown whether the script ran. It never retries, and
    the script continues without a reader. Pieces may be empty, so that the reader can check the clock.
    """

    def __call__(self, script: str) -> Generator[tuple[int, bytes], None, None]:
        """Yield pieces of stdout (0) and stderr (1); close the generator to stop reading."""
