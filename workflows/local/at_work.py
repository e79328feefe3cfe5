"""Units that a runner of this machine works on at this moment, read from the folders that their steps write into."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.contracts.chain import TRY
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.contracts.unit_progress import PROGRESS, UnitProgress, parse_progress
from swe_argo.steps.host import folders
from swe_argo.workflows.local.recovery import is_same_run


@dataclass(frozen=True)
class UnitAtWork:
    """A unit at work on this machine."""

    progress: UnitProgress
    trajectory: Path
    """The file that grows by each turn; there is none before the first, nor in grade."""


def find_units_at_work(run: RunFile) -> list[UnitAtWork]:
    """Of this very run, whoever runs it here: of all folders those that hold it, in the order in which they began."""
    found = []
    for folder in folders.find_owned():
        with suppress(OSError, ValueError):  # it may end at any moment
            progress = parse_progress((folder / "out" / PROGRESS).read_bytes())
            if progress is None or progress.run != run.run_id:
                continue
            if is_same_run(RunFile.from_bytes((folder / "in" / RunFile.file).read_bytes()), run):
                found.append(UnitAtWork(progress, folder / "out" / TRY / Trajectory.file))
    return found
