"""Groups: attempts at one instance that start from a snapshot of the machine that the first attempt prepared.

In the runner's folder, each instance has a lock, held while its machine is prepared, and a record of the result. The
snapshot is taken before any untrusted code runs in the machine.
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
    """The record of a group's snapshot.

    ``name`` is written before the snapshot exists; ``snapshot`` is its id, once known. ``start``: data about the
    prepared machine, from the attempt that prepared it. ``failed``: no snapshot could be taken, so do not try again.
    """

    name: str
    snapshot: str | None = None
    start: dict[str, Any] = {}
    failed: bool = False


class GroupMember:
    """An attempt of a group: the snapshot it starts from, and the machine it prepares for later attempts.

    ``file``: the instance's record; ``lock``: the open lock file that other attempts wait for. None without a group.
    """

    def __init__(self, file: Path | None = None, lock: IO[bytes] | None = None) -> None:
        self._file = file
        self._lock = lock
        self._machine: tuple[Backend, Sandbox] | None = None
        record = _read(file) if file else None
        self.snapshot = record.snapshot if record else None
        """The snapshot to start from; None starts from the image."""
        self.start = record.start if record else {}
        """Recorded data about the machine of the snapshot."""
        if file is None or (record and (record.snapshot or record.failed)):  # nothing to prepare
            self._end()

    def start_from_image(self) -> None:
        """Forget the snapshot, which cannot be used, and start from the image."""
        self.snapshot = None

    def set_machine(self, backend: Backend, box: Sandbox) -> None:
        """Record the machine of this attempt, of which ``take_snapshot`` takes the snapshot."""
        self._machine = (backend, box)

    @property
    def is_preparer(self) -> bool:
        """Whether other attempts wait for this attempt's machine."""
        return self._lock is not None

    def take_snapshot(self, start: dict[str, Any] | None) -> None:
        """Take a snapshot of the prepared machine, and release the other attempts. A failure prints a note.

        ``start``: the data that they need about the machine; None if the machine cannot be shared.
        """
        if self._lock is None or self._file is None or self._machine is None:
            return
        backend, box = self._machine
        record, problem = SnapshotRecord(name=f"sweargo-group-{secrets.token_hex(8)}", start=start or {}), ""
        if start is None or not isinstance(backend, Snapshots):
            problem = "the backend has no snapshots" if start is not None else "a whole machine cannot be shared"
        else:
            if self._file.exists():  # left by a dead preparer: a snapshot of that name may exist
                self._file.replace(self._file.with_stem(f"{self._file.stem}-{secrets.token_hex(4)}"))
            _write(self._file, record)
            try:
                record.snapshot = backend.snapshot(box, record.name)
            except StepError as error:
                problem = error.reason
        if problem:
            sys.stderr.write(
                f"note: no snapshot of the prepared sandbox, so each attempt prepares its own: {problem}\n"
            )
        record.failed = record.snapshot is None
        _write(self._file, record)
        self._end()

    def _end(self) -> None:
        """Release the lock, so that the next attempt continues."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


@contextmanager
def join_group(run: RunFile, instance: Instance) -> Iterator[GroupMember]:
    """Wait while another attempt prepares this instance's machine; yield this attempt as a member of the group.

    Without a group, yield a member that starts from the image and prepares nothing for others.
    """
    folder = settings().groups
    if folder is None or not folder.is_dir():
        yield GroupMember()
        return
    name = hashlib.sha256(f"{run.run_id} {instance.instance_id}".encode()).hexdigest()[:24]
    lock = (folder / f"{name}.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel if a step dies
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
