"""What a helper of a training prints on stderr, kept beside the training when it ends or fails."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import IO

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import HelperLog
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.store import Store

KEPT_BYTES = 1 << 20
"""Of what was printed, its end."""


class ChildLog:
    """Of one helper, however many processes it has one after the other. Methods may be called from any thread."""

    def __init__(self, store: Store, training: str, helper: str) -> None:
        self._store, self._key = store, key(HelperLog, training, name=helper)
        self._title = f"the {helper}'s log"
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this
        """For the stderr of its processes. They share its place, so that each goes on behind the last."""

    @property
    def size(self) -> int:
        """Bytes printed so far."""
        return os.fstat(self.file.fileno()).st_size

    def read(self, start: int = 0) -> str:
        """What was printed from there on, its end."""
        size = self.size
        start = max(start, size - KEPT_BYTES)
        return os.pread(self.file.fileno(), size - start, start).decode(errors="replace")  # moves nobody's place

    def keep(self) -> bool:
        """Write it into the store; whether there is anything there now. A store that fails costs the log alone."""
        data = self.read().encode()
        with suppress(StepError):
            if data:
                self._store.put(self._key, data)
            return bool(data)
        return False

    def keep_for(self, error: StepError) -> None:
        """The same, and have the failure name it, unless it is the request's, of which one line says all."""
        if self.keep() and not isinstance(error, ConfigError):
            error.add_note(f"{self._title}: {self._store.locate(self._key)}")

    def close(self) -> None:
        """Keep it a last time."""
        self.keep()
        self.file.close()
