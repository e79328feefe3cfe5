"""A run's file in ``flakes/``: a row for each grading with reliable results of single tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome
from swe_argo.steps.datasets.names import is_bundled
from swe_argo.steps.reports.parquet_bytes import make_table, read_parquet, write_parquet
from swe_argo.steps.reports.reading import SHOWN_TESTS
from swe_argo.steps.reports.stored_run import StoredRun, StoredUnit

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "flakes/"
"""Folder of the store with one file per run, so that runs that end at the same time overwrite nothing."""
_JUDGED = (Outcome.RESOLVED, Outcome.UNRESOLVED)


@dataclass(frozen=True, slots=True)
class Grading:
    """A grading of a patch."""

    dataset: str
    """See ``dataset_key``."""
    instance_id: str
    patch_sha256: str
    seen_at: str
    """Time at which its run was planned; verdicts have no time."""
    failing: frozenset[str]
    """Listed tests without the expected result; all other listed tests had it."""


def find_gradings(run: StoredRun) -> Iterator[Grading]:
    """Yield the gradings of reference patches and untouched repositories, including canary and pre-``--redo`` ones.

    Excluded are patches of agents and confirmations, whose code could flip tests and so excuse the next run; logs
    without results of tests; suspect logs; and logs with more failing tests than are recorded, because there the whole
    suite broke.
    """
    is_trusted = agent_of(run.run.spec.agent).kind in (AgentKind.REFERENCE, AgentKind.CONTROL)
    grades = [grade for unit in run.units for grade in _whole_grades(unit)] if is_trusted else []
    for grade in [*grades, *(run.canary.grades if run.canary else [])]:
        if (
            grade.outcome in _JUDGED
            and grade.integrity.verdict != "suspect"
            and len(grade.failing_tests) <= SHOWN_TESTS
        ):
            common = (dataset_key(run.run.dataset.name), grade.instance_id, grade.patch_sha256, run.run.created_at)
            yield Grading(*common, frozenset(grade.failing_tests))


def dataset_key(name: str) -> str:
    """Return the name of a dataset in flakes: for a local file or folder its absolute path."""
    return name if is_bundled(name) or not Path(name).exists() else str(Path(name).resolve())


def _whole_grades(unit: StoredUnit) -> list[GradeRecord]:
    """Return the unit's grades whose failing tests are all known, earlier ones first."""
    is_whole = unit.grade is not None and unit.failing_tests == len(unit.grade.failing_tests)
    return [*unit.earlier_grades, *([unit.grade] if unit.grade and is_whole else [])]


def gradings_key(run_id: str) -> str:
    """Return the store key of the run's file."""
    return f"{FOLDER}{run_id}.parquet"


def write_gradings(gradings: list[Grading]) -> bytes:
    """Return the content of the parquet file."""
    rows = [
        {name: getattr(grading, name) for name in _TEXT_COLUMNS} | {"failing": sorted(grading.failing)}
        for grading in gradings
    ]
    return write_parquet(make_table(rows, _schema()))


def read_gradings(data: bytes) -> list[Grading]:
    """Return the gradings of the file; none if it cannot be read."""
    rows = read_rows(data, _schema())
    return [Grading(**{**row, "failing": frozenset(row["failing"])}) for row in rows]


def read_rows(data: bytes, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the rows of a parquet file; none if it is broken or has another schema."""
    try:
        table = read_parquet(data).select(schema.names)
        table.validate(full=True)  # finds text that is not UTF-8
    except (ValueError, KeyError):
        return []
    is_whole = table.schema.equals(schema) and not any(column.null_count for column in table.columns)
    return table.to_pylist() if is_whole else []


def _schema() -> pa.Schema:
    import pyarrow as pa

    text = pa.string()
    return pa.schema([*((name, text) for name in _TEXT_COLUMNS), ("failing", pa.list_(text))])


_TEXT_COLUMNS = ("dataset", "instance_id", "patch_sha256", "seen_at")
