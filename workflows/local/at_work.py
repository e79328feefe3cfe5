"""Units that a runner on this machine is working on now, read from the output folders of their steps."""

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
    """A unit in progress on this machine."""

    progress: UnitProgress
    trajectory: Path
    """The file to which each turn is appended; it is missing before the first turn and during grade."""


def find_units_at_work(run: RunFile) -> list[UnitAtWork]:
    """Return the units in progress of this run, whichever process runs it here, in the order of their start."""
    units = []
    for folder in folders.find_owned():
        with suppress(OSError, ValueError):  # the step may end at any moment
            progress = parse_progress((folder / "out" / PROGRESS).read_bytes())
            if progress is None or progress.run != run.run_id:
                continue
            if is_same_run(RunFile.from_bytes((folder / "in" / RunFile.file).read_bytes()), run):
                units.append(UnitAtWork(progress, folder / "out" / TRY / Trajectory.file))
    return units
