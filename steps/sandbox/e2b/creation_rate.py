"""How fast sandboxes are made, kept over all processes of this machine that use one account."""

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
"""A pause that a service asks for is no longer than this: somebody has to look whether it is over."""
_LOOK_S = 1.0
"""How often whoever is next looks whether the service has refused another."""
_MOST_PLACES = 64
_BUSY_S = 0.05
"""How often whether a request was answered."""


class CreationRate:
    """Gives turns, at most ``per_second`` of them a second; none while a pause lasts that the service asked for.

    A service counts when requests arrive, which is some time after they are sent. So there are ``per_second`` places,
    and each is free again a second after its request was answered: however long they are on their way, no more arrive
    in any second. A place is a file that holds the moment from which it is free, locked while it is used; who is next
    holds the lock of the queue, and the others wait for that. A process that dies gives its locks back.

    ``refusals``: what the service said when it took no more.
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
        """Wait until a sandbox may be asked for; the block is the request. Raises ConfigError for files that cannot be

        written.
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
        """A place that is free, locked."""
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
        """Seconds until a place is free, as far as can be known; it is ours where they are none."""
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _BUSY_S
        wait = _number(place) - self._clock()
        if wait <= 0 or wait > self._apart_s:  # it is ours, or the clock was set back
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
    """What the file holds; 0 where that is no moment."""
    file.seek(0)
    try:
        number = float(file.read())
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(number) else number
