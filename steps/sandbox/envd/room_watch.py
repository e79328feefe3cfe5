"""A notice for the user while an account has no room for another sandbox."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from swe_argo.steps.errors import one_line
from swe_argo.steps.sandbox.envd.refusals import Refusals

LOOK_S = 5.0
PATIENCE_S = 10.0
"""Seconds without room before the first notice."""
NOTICE_PAUSE_S = 60.0
"""Seconds between two notices."""
_WIDTH = 300
"""Maximum characters of the service's reason in a notice."""


class RoomWatch:
    """A repeated line on stderr while the service refuses further sandboxes.

    ``where``: the service's name for messages.
    """

    def __init__(
        self, refusals: Refusals, where: str, *, patience_s: float = PATIENCE_S, again_s: float = NOTICE_PAUSE_S
    ) -> None:
        self._refusals = refusals
        self._where = where
        self._patience_s = patience_s
        self._again_s = again_s
        self._next = 0.0

    def print_if_due(self) -> None:
        """Write the line if it is due."""
        refusal = self._refusals.latest()
        if refusal is None:
            self._next = 0.0
            return
        waited_s = time.time() - refusal.since
        if waited_s >= self._patience_s and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._again_s
            why = one_line(refusal.why, _WIDTH)
            sys.stderr.write(
                f"note: {self._where} has had no room for another sandbox for {waited_s:.0f} s; waiting: {why}\n"
            )


@contextmanager
def watch_room(refusals: Refusals, where: str) -> Iterator[None]:
    """Print notices about refused sandboxes during the block, from a thread."""
    watch, stop = RoomWatch(refusals, where), threading.Event()

    def work() -> None:
        while not stop.wait(LOOK_S):
            watch.print_if_due()

    thread = threading.Thread(target=work, name="room", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
