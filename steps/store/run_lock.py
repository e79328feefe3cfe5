"""The lock by which a runner owns a run in its store, and the refusal of other runners."""

from __future__ import annotations

import time
from typing import ClassVar

from swe_argo.steps.contracts.record import Place, Record, key
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host.folders import is_dead
from swe_argo.steps.store import Store

DEAD_S = 120.0
"""Seconds without a heartbeat until a runner counts as dead; long, as clocks differ and stores fail for a while."""


class Lock(Record):
    """The lock of a run."""

    file: ClassVar[str] = "lock.json"
    place: ClassVar[Place] = Place.RUN
    labels: ClassVar[tuple[str, str]] = ("run", "another run id")
    """Words for the message of ``refusal``: what is locked, and what the user can use instead."""
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

    def is_abandoned(self) -> bool:
        """Return whether its owner is dead: its process, if of this machine, has ended, or it sent no heartbeat."""
        return is_dead(self.process) or time.time() - self.alive_at > DEAD_S

    def refusal(self, run_id: str) -> ConfigError:
        """Return the error for another runner of the run."""
        silent_s = max(0.0, time.time() - self.alive_at)
        return ConfigError(
            f"{self.labels[0]} {run_id!r} is being worked on by process {self.pid} on {self.host} (last heartbeat "
            f"{silent_s:.0f} s ago, dead after {DEAD_S:.0f} s): wait for it, stop it, or use {self.labels[1]}",
            field=self.field,
        )


class TrainingLock(Lock):
    """The lock of a training."""

    place: ClassVar[Place] = Place.TRAINING
    labels: ClassVar[tuple[str, str]] = ("training", "another name")
    field: ClassVar[str] = "name"


def parse_lock(data: bytes | None, kind: type[Lock] = Lock) -> Lock | None:
    """Parse a lock; return None if it is missing or broken, and so has no owner."""
    try:
        return None if data is None else kind.from_bytes(data)
    except ValueError:
        return None


def refuse_busy(store: Store, run_id: str, token: str | None) -> None:
    """Check that no other runner works on the run; ``token`` is that of our own lock, None if we have none.

    Raises ConfigError if a living runner holds the lock with another token, InfraError if the store fails.
    """
    name = key(Lock, run_id)
    lock = parse_lock(store.get_many([name]).get(name))
    if lock and lock.token != token and not lock.is_abandoned():
        raise lock.refusal(run_id)
