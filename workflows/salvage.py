"""What a runner that was killed had not brought to the store yet: what its units in flight had done and spent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from steps.contracts.chain import SOLVE, TRY
from steps.contracts.data import Failure, FailureClass, Instance, RunFile
from steps.contracts.record import Place, key
from steps.contracts.trajectory import Trajectory, usage_in
from steps.errors import EXIT_INFRA
from steps.sandbox import strays
from steps.store import Store

KEPT_S = 7 * 86_400.0
"""Seconds that such a folder waits for its run to be resumed."""


def keep(store: Store, run_id: str) -> int:
    """Keep it as failed tries of the run, so that what was paid for is counted; returns how many. Raises InfraError.

    A folder that was kept is removed.
    """
    found = 0
    for folder in filter(worth, strays.strays()):
        if not _of(folder, store, run_id):
            continue
        for left in _left(folder):
            place = Place.TRY.format(run=run_id, instance=left.instance, attempt=left.failure.attempt, name=left.name)
            files = {f"{place}/{Trajectory.file}": left.trajectory} if left.trajectory else {}
            store.put_many(files | {f"{place}/{Failure.file}": left.failure.to_bytes()})
            found += 1
        strays.remove(folder)
    return found


def worth(folder: Path) -> bool:
    """Whether a dead runner's folder holds what its run may still want: not for the clean-up of another run."""
    young = time.time() - folder.stat().st_mtime < KEPT_S
    return young and any(path.exists() for path in _files(folder))


@dataclass(frozen=True)
class _Left:
    """One try under way when its runner was killed."""

    instance: str
    name: str
    trajectory: bytes | None
    failure: Failure


def _files(folder: Path) -> list[Path]:
    """Where a solve leaves its trajectory: a step that had ended took what it had left with it."""
    return [folder / "out" / Trajectory.file, folder / "out" / TRY / Trajectory.file]


def _of(folder: Path, store: Store, run_id: str) -> bool:
    """Whether it is of this very run: elsewhere there may be one of the same name."""
    try:
        run = RunFile.from_bytes((folder / "in" / RunFile.file).read_bytes())
        here = RunFile.from_bytes(store.get(key(RunFile, run_id)))
    except (OSError, ValidationError, ValueError):
        return False
    same = (run.run_id, run.created_at, run.dataset) == (run_id, here.created_at, here.dataset)
    return same and _place(run.spec.store) == _place(store.url)


def _place(url: str) -> str:
    return url if "://" in url else str(Path(url).expanduser().resolve())


def _left(folder: Path) -> Iterator[_Left]:
    """What a dead runner's staging folder holds of a solve."""
    try:
        run = RunFile.from_bytes((folder / "in" / RunFile.file).read_bytes())
        instance = Instance.from_bytes((folder / "in" / Instance.file).read_bytes()).instance_id
    except (OSError, ValidationError, ValueError):
        return
    data = next((path.read_bytes() for path in _files(folder) if path.exists()), b"")
    usage = usage_in(data)
    if not usage.requests:
        return
    try:
        attempt = Trajectory.from_bytes(data).extra.attempt
    except (ValidationError, ValueError):
        return
    began = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    failure = Failure(
        step=SOLVE.name,
        instance_id=instance,
        attempt=attempt,
        failure_class=FailureClass.STEP_KILLED,
        reason="its runner was killed",
        exit_code=EXIT_INFRA,
        occurred_at=began.isoformat(timespec="seconds"),
        usage=usage,
    )
    kept = data if run.spec.save_checkpoints else None
    yield _Left(instance, f"{began:%Y%m%dT%H%M%S%f}", kept, failure)
