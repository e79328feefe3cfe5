"""The lock by which a runner owns a run in its store, and the refusal of other runners."""

from __future__ import annotations

import time
from typing import ClassVar

from swe_argo.steps.contracts.record import Place, Record, key
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host.folders import is_dead
from swe_argo.steps.store import Store

DEAD_S = 120.0
"""Seconds without a heartbeat until a runner counts as dead: two machines' clocks differ, and stores fail."""


class Lock(Record):
    """The lock of a run."""

    file: ClassVar[str] = "lock.json"
    place: ClassVar[Place] = Place.RUN
    what: ClassVar[tuple[str, str]] = ("run", "another run id")
    """The kind of thing that it locks, and the alternative to it."""
    field: ClassVar[str] = "run_id"
    token: str
    """Unique id of this hold."""
    process: str
    """The owner as a ``swe_argo.steps.host.folders.process_owner`` id, which its own machine can check."""
    pid: int
    host: str
    alive_at: float
    """Its last heartbeat, in seconds since 1970."""
    began_at: float = 0.0
    """The time at which it took the run, likewise; 0 in locks of older versions."""

    def is_over(self) -> bool:
        """Return whether its owner is dead, as seen here or by its silence."""
        return is_dead(self.process) or time.time() - self.alive_at > DEAD_S

    def refusal(self, run_id: str) -> ConfigError:
        """Return the error for another runner of the run."""
        silent = max(0.0, time.time() - self.alive_at)
        return ConfigError(
            f"{self.what[0]} {run_id!r} is being worked on by process {self.pid} on {self.host} (last sign of life "
            f"{silent:.0f} s ago; after {DEAD_S:.0f} s without one it counts as dead): wait for it, stop it, or use "
            f"{self.what[1]}",
            field=self.field,
        )


class TrainingLock(Lock):
    """The lock of a training."""

    place: ClassVar[Place] = Place.TRAINING
    what: ClassVar[tuple[str, str]] = ("training", "another name")
    field: ClassVar[str] = "name"


def lock_in(data: bytes | None, kind: type[Lock] = Lock) -> Lock | None:
    """Parse a lock; return None for a missing or broken one, which nobody owns."""
    try:
        return None if data is None else kind.from_bytes(data)
    except ValueError:
        return None


def refuse_busy(store: Store, run_id: str, token: str | None) -> None:
    """Raise ConfigError if another living runner, without this token, works on the run; InfraError."""
    name = key(Lock, run_id)
    lock = lock_in(store.get_many([name]).get(name))
    if lock and lock.token != token and not lock.is_over():
        raise lock.refusal(run_id)
