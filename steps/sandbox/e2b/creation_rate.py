"""A rate limiter for new sandboxes, shared by all processes of this machine that use one account."""

from __future__ import annotations

import fcntl
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.envd.refusals import Refusals

LONGEST_PAUSE_S = 600.0
"""Upper bound of a pause that a service asks for, after which a process must ask again."""
_LOOK_S = 1.0
"""Seconds between checks of the next process whether the service has refused another."""
_MOST_PLACES = 64
_BUSY_S = 0.05
"""Seconds between checks whether a request was answered."""


class CreationRate:
    """Grants at most ``per_second`` turns a second, and none during a pause that the service asked for.

    A service counts requests on arrival, some time after they are sent. So there are ``per_second`` slots, and each is
    free again a second after its request was answered: however long requests travel, no more arrive in any second. A
    slot is a file that holds the time from which it is free, locked while in use; the next process holds the lock of
    the queue, for which the others wait. The kernel releases the locks of a process that dies.

    ``refusals``: the service's refusals for lack of room.
    """

    def __init__(
        self,
        file: Path,
        per_second: float,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._queue = file
        self.refusals = Refusals(file.with_name(f"{file.name}.refused"), LONGEST_PAUSE_S, clock=clock)
        number = max(1, min(int(per_second), _MOST_PLACES))
        self._places = [file.with_name(f"{file.name}.{place}") for place in range(number)]
        self._apart_s = number / per_second
        self._clock = clock
        self.sleep = sleep

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until a sandbox may be requested; the block is the request.

        Raises ConfigError if the files cannot be written.
        """
        try:
            self._queue.parent.mkdir(parents=True, exist_ok=True)
            with self._queue.open("a") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                place = self._wait_place()
        except OSError as error:
            raise ConfigError(
                f"cannot write {self._queue}: {error.strerror}: set SWE_ARGO_HOME", field="home"
            ) from error
        try:
            yield
        finally:
            with place:
                self._use(place)

    def _wait_place(self) -> TextIO:
        """Return a free slot, locked."""
        while True:
            if (left := self._paused_until() - self._clock()) > 0:
                self.sleep(min(left, _LOOK_S))
                continue
            waits = []
            for file in self._places:
                place = file.open("a+")
                if (wait := self._try(place)) <= 0:
                    return place
                place.close()
                waits.append(wait)
            self.sleep(min(*waits, _LOOK_S))

    def _try(self, place: TextIO) -> float:
        """Return the seconds until a slot is free, as far as known; if none, take it."""
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _BUSY_S
        wait = _number(place) - self._clock()
        if wait <= 0 or wait > self._apart_s:  # the slot is ours, or the clock was set back
            self._use(place)
        return min(wait, self._apart_s)

    def _use(self, place: TextIO) -> None:
        place.truncate(0)
        place.write(repr(self._clock() + self._apart_s))
        place.flush()

    def _paused_until(self) -> float:
        refusal = self.refusals.latest()
        return refusal.until if refusal else 0.0


def _number(file: TextIO) -> float:
    """Return the number in a file; 0 if it is not a time."""
    file.seek(0)
    try:
        number = float(file.read())
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(number) else number
