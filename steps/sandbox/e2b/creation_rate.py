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
"""Maximum pause that a service may ask for."""
_LOOK_S = 1.0
"""Maximum sleep, so that a refusal of another process is noticed."""
_MAX_SLOTS = 64
"""Maximum slots, of which each is a file; a higher rate uses each slot more often."""
_BUSY_S = 0.05
"""Sleep while a slot is in use."""


class CreationRate:
    """A rate limiter: at most ``per_second`` turns a second, and none during a pause that the service asked for.

    A service counts requests on arrival, some time after they are sent. So there are ``per_second`` slots, each free
    again a second after its request was answered: with any latency, no more requests arrive in a second. A slot is a
    file with the time from which it is free, locked while in use. The first waiting process holds the lock of the
    queue; the others wait for it. The kernel releases the locks of a process that dies.

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
        number = max(1, min(int(per_second), _MAX_SLOTS))
        self._slots = [file.with_name(f"{file.name}.{slot}") for slot in range(number)]
        self._rest_s = number / per_second  # seconds from a slot's last use until it is free
        self._clock = clock
        self.sleep = sleep

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until a sandbox may be requested; the request is made in the block, during which a slot is in use.

        Raises ConfigError if the files cannot be written.
        """
        try:
            self._queue.parent.mkdir(parents=True, exist_ok=True)
            with self._queue.open("a") as queue:
                fcntl.flock(queue, fcntl.LOCK_EX)
                slot = self._wait_for_slot()
        except OSError as error:
            raise ConfigError(
                f"cannot write {self._queue}: {error.strerror}: set SWE_ARGO_HOME", field="home"
            ) from error
        try:
            yield
        finally:
            with slot:
                self._reserve(slot)

    def _wait_for_slot(self) -> TextIO:
        """Return a free slot, locked."""
        while True:
            if (pause_s := self._paused_until() - self._clock()) > 0:
                self.sleep(min(pause_s, _LOOK_S))
                continue
            waits = []
            for file in self._slots:
                slot = file.open("a+")
                if (wait := self._try_to_take(slot)) <= 0:
                    return slot
                slot.close()
                waits.append(wait)
            self.sleep(min(*waits, _LOOK_S))

    def _try_to_take(self, slot: TextIO) -> float:
        """Return the seconds until a slot is free, as far as known; take it if that is 0 or less."""
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _BUSY_S
        wait = _number(slot) - self._clock()
        if wait <= 0 or wait > self._rest_s:  # the slot is ours now, or its time is wrong as the clock was set back
            self._reserve(slot)
        return min(wait, self._rest_s)

    def _reserve(self, slot: TextIO) -> None:
        """Write the time from which the slot is free, counted from now."""
        slot.truncate(0)
        slot.write(repr(self._clock() + self._rest_s))
        slot.flush()

    def _paused_until(self) -> float:
        """Return the time at which the service's pause ends; 0 without a pause."""
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
