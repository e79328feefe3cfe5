"""Which runner works on a run: the lock that it holds in the run's store, and who is refused because of it."""

from __future__ import annotations

import time
from typing import ClassVar

from swe_argo.steps.contracts.record import Place, Record, key
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host.folders import is_dead
from swe_argo.steps.store import Store

DEAD_S = 120.0
"""Without a sign of life for so long a runner counts as dead: the clocks of two machines differ, and stores fail."""


class Lock(Record):
    """Who works on a run."""

    file: ClassVar[str] = "lock.json"
    place: ClassVar[Place] = Place.RUN
    what: ClassVar[tuple[str, str]] = ("run", "another run id")
    """What it locks, and what else there is to use."""
    field: ClassVar[str] = "run_id"
    token: str
    """Tells one hold from every other."""
    process: str
    """As ``swe_argo.steps.host.folders.process_owner`` names it: on its own machine anybody sees whether it lives."""
    pid: int
    host: str
    alive_at: float
    """Its last sign of life, in seconds since 1970."""
    began_at: float = 0.0
    """When it took the run, likewise; 0 in locks from before this was told."""

    def is_over(self) -> bool:
        """Whether its owner is dead, seen here or by its silence."""
        return is_dead(self.process) or time.time() - self.alive_at > DEAD_S

    def refusal(self, run_id: str) -> ConfigError:
        """What is told to another that wants to work on the run."""
        silent = max(0.0, time.time() - self.alive_at)
        return ConfigError(
            f"{self.what[0]} {run_id!r} is being worked on by process {self.pid} on {self.host} (last sign of life "
            f"{silent:.0f} s ago; after {DEAD_S:.0f} s without one it counts as dead): wait for it, stop it, or use "
            f"{self.what[1]}",
            field=self.field,
        )


class TrainingLock(Lock):
    """Who works on a training."""

    place: ClassVar[Place] = Place.TRAINING
    what: ClassVar[tuple[str, str]] = ("training", "another name")
    field: ClassVar[str] = "name"


def lock_in(data: bytes | None, kind: type[Lock] = Lock) -> Lock | None:
    """None where there is none, or one that is broken: nobody's."""
    try:
        return None if data is None else kind.from_bytes(data)
    except ValueError:
        return None


def refuse_busy(store: Store, run_id: str, token: str | None) -> None:
    """Raises ConfigError where a runner that lives works on the run, other than the one with this token; InfraError."""
    name = key(Lock, run_id)
    lock = lock_in(store.get_many([name]).get(name))
    if lock and lock.token != token and not lock.is_over():
        raise lock.refusal(run_id)
