"""The stderr of a training's helper processes, written to the store when a helper ends or fails."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import IO

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import HelperLog
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.store import Store

MAX_BYTES = 1 << 20
"""Maximum size in the store; the end of a longer log is stored."""


class ChildLog:
    """The log of one helper, across restarts of its process. Thread-safe."""

    def __init__(self, store: Store, training: str, helper: str) -> None:
        self._store, self._key = store, key(HelperLog, training, name=helper)
        self._title = f"the {helper}'s log"
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this
        """The stderr of its processes. They share the file offset, so each appends to the output of the last one."""

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self.file.fileno()).st_size

    def read(self, start: int = 0) -> str:
        """Return the log from offset ``start``, at most its last MAX_BYTES."""
        size = self.size
        start = max(start, size - MAX_BYTES)
        return os.pread(self.file.fileno(), size - start, start).decode(errors="replace")  # keeps the offset

    def save(self) -> bool:
        """Write the log into the store and return whether it was written: not if it is empty or the store fails."""
        data = self.read().encode()
        with suppress(StepError):
            if data:
                self._store.put(self._key, data)
            return bool(data)
        return False

    def save_for(self, error: StepError) -> None:
        """Store the log and add its location to the error, except to a ConfigError, whose message is enough."""
        if self.save() and not isinstance(error, ConfigError):
            error.add_note(f"{self._title}: {self._store.locate(self._key)}")

    def close(self) -> None:
        """Store the log and close the file."""
        self.save()
        self.file.close()
