"""The lock of a run: a file in its store, so that only one runner on any machine works on the run."""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from swe_argo.steps.contracts.record import key
from swe_argo.steps.errors import StepError
from swe_argo.steps.host.folders import process_owner
from swe_argo.steps.store import Store
from swe_argo.steps.store.run_lock import Lock, parse_lock

BEAT_S = 20.0
"""Seconds between two heartbeats."""


class RunLock:
    """The lock of this process on one run of a store.

    ``on_loss`` is called from another thread when another runner has taken over the run.
    """

    def __init__(self, store: Store, run_id: str, kind: type[Lock] = Lock) -> None:
        """Create the lock, not yet acquired; ``kind`` is TrainingLock for a training."""
        self.on_loss: Callable[[], None] = lambda: None
        self.store, self._run, self._kind = store, run_id, kind
        self._key = key(kind, run_id)
        self.warning = ""
        """Set by ``acquire``: a sentence about the guarantees that the store lacks; empty if there are none."""
        self._mine, self._began_at = b"", round(time.time(), 3)
        self.token = secrets.token_hex(8)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="hold", daemon=True)

    def acquire(self) -> None:
        """Acquire the lock. Raises ConfigError if another live runner holds it, and the errors of the store."""
        existing: bytes | None = None
        while not self._write(existing):
            existing = self.store.get_many([self._key]).get(self._key)
            lock = parse_lock(existing, self._kind)
            if lock and lock.token != self.token and not lock.is_abandoned():
                raise lock.refusal(self._run)
        if not self.store.has_atomic_swap(self._key, self._mine):
            self.warning = (
                f"{self.store.url} cannot lock {self._kind.labels[0]} {self._run!r} reliably (a bucket without "
                "conditional writes, or a folder without locks): start only one runner, because two that start at the "
                "same moment would both work on it"
            )
        self._thread.start()

    def release(self) -> None:
        """Release the lock. If the store is unreachable, the lock expires soon."""
        self._end.set()
        self._thread.join()
        with suppress(StepError):
            if self.store.get_many([self._key]).get(self._key) == self._mine:
                self.store.delete_many([self._key])

    def _write(self, old: bytes | None) -> bool:
        """Replace the lock file by ours with the current time if its content is ``old``; return whether it was.

        ``old``: None if there is no file.
        """
        lock = self._kind(
            token=self.token,
            process=process_owner(),
            pid=os.getpid(),
            host=platform.node(),
            alive_at=round(time.time(), 3),
            began_at=self._began_at,
        )
        was_written = self.store.swap(self._key, old, lock.to_bytes())
        self._mine = lock.to_bytes() if was_written else self._mine
        return was_written

    def _beat(self) -> None:
        """Renew the lock every BEAT_S until it is released or lost."""
        while not self._end.wait(BEAT_S):
            with suppress(StepError):  # the store is unreachable: the last heartbeat is valid for a while
                if not self._write(self._mine) and not self._is_still_ours():
                    self.on_loss()
                    return

    def _is_still_ours(self) -> bool:
        """Return whether the lock is still ours: a heartbeat may be in the store although its response was lost."""
        existing = self.store.get_many([self._key]).get(self._key)
        if existing is None or (lock := parse_lock(existing)) is None:  # the file was removed by hand
            return self._write(existing)
        if lock.token != self.token:
            return False
        self._mine = existing
        return True


@contextmanager
def hold_run(store: Store, run_id: str, kind: type[Lock] = Lock) -> Iterator[RunLock]:
    """Hold the lock of the run (or training, by ``kind``) and renew it; take over that of a dead runner.

    Raises ConfigError if another live runner holds it.
    """
    lock = RunLock(store, run_id, kind)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()
