"""Attempts at one instance that begin from one prepared machine: whoever comes first prepares it, the others copy it.

The runner gives its steps a folder. In it each instance has a lock, held while its machine is prepared, and a record of
what came of it. What is copied is a machine in which no foreign code has run.
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from swe_argo.steps.contracts.data import Instance, RunFile
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.protocol import Backend, Sandbox, Snapshots
from swe_argo.steps.settings import settings


class SnapshotRecord(BaseModel):
    """``name`` is written before there is a snapshot; ``snapshot`` is its id, None while there is none, or none can be.

    ``start`` is what whoever prepared the machine knows of it.
    """

    name: str
    snapshot: str | None = None
    start: dict[str, Any] = {}
    failed: bool = False


class GroupMember:
    """One attempt: what it begins from, and what it leaves to those that come after it."""

    def __init__(self, file: Path | None = None, lock: IO[bytes] | None = None) -> None:
        self._file = file
        self._lock = lock
        self._machine: tuple[Backend, Sandbox] | None = None
        record = _read(file) if file else None
        self.snapshot = record.snapshot if record else None
        """What to begin from; None: from the image."""
        self.start = record.start if record else {}
        """What is known of such a machine."""
        if file is None or (record and (record.snapshot or record.failed)):
            self._end()

    def begin_from_image(self) -> None:
        """The snapshot is of no use."""
        self.snapshot = None

    def has(self, backend: Backend, box: Sandbox) -> None:
        """The machine of this attempt is there."""
        self._machine = (backend, box)

    @property
    def prepares(self) -> bool:
        """Whether others wait for what this one prepares."""
        return self._lock is not None

    def keep(self, start: dict[str, Any] | None) -> None:
        """The machine is prepared: keep its state for the others, which go on then. Never fails.

        ``start``: what they must know of it; None: what they cannot be told.
        """
        if self._lock is None or self._file is None or self._machine is None:
            return
        backend, box = self._machine
        record, why = SnapshotRecord(name=f"sweargo-group-{secrets.token_hex(8)}", start=start or {}), ""
        if start is None or not isinstance(backend, Snapshots):
            why = "the backend takes none" if start is not None else "none of a whole machine is taken"
        else:
            if self._file.exists():  # of one that died meanwhile: there may be a snapshot of that name, to be removed
                self._file.replace(self._file.with_stem(f"{self._file.stem}-{secrets.token_hex(4)}"))
            _write(self._file, record)
            try:
                record.snapshot = backend.snapshot(box, record.name)
            except StepError as error:
                why = error.reason
        if why:
            sys.stderr.write(f"note: no snapshot, so each attempt prepares its own machine: {why}\n")
        record.failed = record.snapshot is None
        _write(self._file, record)
        self._end()

    def _end(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


@contextmanager
def join_group(run: RunFile, instance: Instance) -> Iterator[GroupMember]:
    """Wait for the one that prepares this instance's machine, if somebody does. Without a group it is any attempt."""
    folder = settings().groups
    if folder is None or not folder.is_dir():
        yield GroupMember()
        return
    name = hashlib.sha256(f"{run.run_id} {instance.instance_id}".encode()).hexdigest()[:24]
    lock = (folder / f"{name}.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given up by the kernel where a step dies
        yield GroupMember(folder / f"{name}.json", lock)
    finally:
        lock.close()


def _read(file: Path) -> SnapshotRecord | None:
    try:
        return SnapshotRecord.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None


def _write(file: Path, record: SnapshotRecord) -> None:
    part = file.with_suffix(".part")
    part.write_text(record.model_dump_json(), "utf-8")
    part.replace(file)
