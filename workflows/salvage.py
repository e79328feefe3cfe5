"""What a runner that was killed had not brought to the store yet: what its units in flight had done and spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from steps.contracts.chain import SOLVE, TRY
from steps.contracts.data import Failure, FailureClass, Instance, RunFile
from steps.contracts.record import Place
from steps.contracts.trajectory import Trajectory, usage_in
from steps.errors import EXIT_INFRA
from steps.sandbox import strays
from steps.store import Store


def keep(store: Store, run_id: str) -> int:
    """Keep it as failed tries of the run, so that what was paid for is counted; returns how many. Raises InfraError.

    Such a folder goes with the next clean-up of any run on this machine: this must come first.
    """
    found = 0
    for folder in strays.strays():
        for left in _left(folder, run_id):
            place = Place.TRY.format(run=run_id, instance=left.instance, attempt=left.failure.attempt, name=left.name)
            files = {f"{place}/{Trajectory.file}": left.trajectory} if left.trajectory else {}
            store.put_many(files | {f"{place}/{Failure.file}": left.failure.to_bytes()})
            found += 1
    return found


@dataclass(frozen=True)
class _Left:
    """One try under way when its runner was killed."""

    instance: str
    name: str
    trajectory: bytes | None
    failure: Failure


def _left(folder: Path, run_id: str) -> Iterator[_Left]:
    """What a dead runner's staging folder holds of a solve, if it is one of this run."""
    try:
        run = RunFile.from_bytes((folder / "in" / RunFile.file).read_bytes())
        instance = Instance.from_bytes((folder / "in" / Instance.file).read_bytes()).instance_id
    except (OSError, ValidationError, ValueError):
        return
    out = folder / "out"
    # A step that had ended took what it had left with it: its trajectory is whole then.
    files = [path for path in (out / Trajectory.file, out / TRY / Trajectory.file) if path.exists()]
    data = files[0].read_bytes() if files else b""
    usage = usage_in(data)
    if run.run_id != run_id or not usage.requests:
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
