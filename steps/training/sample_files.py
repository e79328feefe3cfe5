"""Parquet files with samples, one per row: schema, writer and reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.training.samples import CallSpan, TokenSequence

FILE = "samples.parquet"
_CALL = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("step", pa.int32()),
        ("weights", pa.string()),
        ("finish_reason", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("run", pa.string()),
        ("instance_id", pa.string()),
        ("attempt", pa.int32()),
        ("sample", pa.int32()),
        ("reward", pa.float64()),
        ("outcome", pa.string()),
        ("suspect", pa.bool_()),
        ("integrity", pa.string()),
        ("confirmation", pa.string()),
        ("stop_reason", pa.string()),
        ("model", pa.string()),
        ("temperature", pa.float64()),
        ("tokens", pa.list_(pa.int32())),
        ("sampled", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("calls", pa.list_(_CALL)),
    ],
    metadata={"swe_argo_samples": "2"},
)
"""Described in docs/training.md."""
_SCHEMA_1 = pa.schema([column for column in SCHEMA if column.name not in {"integrity", "confirmation"}])
"""Schema of older releases."""


@dataclass(frozen=True)
class SampledUnit:
    """Columns common to all samples of a unit. ``reward`` is the unit's, not the sample's: see docs/training.md."""

    group: str
    """Units of one group have the same task: its rewards are compared with each other."""
    run: str
    instance_id: str
    attempt: int
    reward: float
    outcome: str
    integrity: str
    """ok, unconfirmed or suspect."""
    confirmation: str
    """Outcome of the confirmation, unavailable if it was unstable; empty if none was tried."""
    stop_reason: str
    model: str
    temperature: float | None
    """None: the endpoint's own."""


@dataclass(frozen=True)
class Sample:
    """A row. ``tokens`` int32, ``sampled`` bool and ``logprobs`` float32 are numpy arrays of one length."""

    unit: SampledUnit
    number: int
    """Number among the unit's samples, from 0."""
    tokens: Any
    sampled: Any
    logprobs: Any
    calls: list[CallSpan]


class SampleWriter:
    """Writer of a file, with one row group per unit, so that a whole run is never in memory."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")

    def add(self, unit: SampledUnit, stretches: Iterable[TokenSequence]) -> None:
        """Add the samples of a unit."""
        rows = [
            {
                **asdict(unit),
                **vars(stretch),
                "suspect": unit.integrity == "suspect",
                "sample": number,
                "calls": [asdict(call) for call in stretch.calls],
            }
            for number, stretch in enumerate(stretches)
        ]
        if rows:
            self._writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


@contextmanager
def open_samples(path: Path) -> Iterator[SampleWriter]:
    """Yield the writer of a new sample file at ``path``."""
    writer = SampleWriter(path)
    try:
        yield writer
    finally:
        writer.close()


def read_samples(path: Path) -> Iterator[Sample]:
    """Yield the rows of a file, or of all ``*.parquet`` in a folder, in order, with one row group in memory at a time.

    Needs numpy (extra ``tinker``). Raises ConfigError if there is no file, or a file has no samples.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise ConfigError(f"there are no samples at {path}", field="samples")
    for file in files:
        try:
            reader = pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"{file} is not a Parquet file: {error}", field="samples") from None
        with reader:
            if not any(map(reader.schema_arrow.equals, (SCHEMA, _SCHEMA_1))):
                raise ConfigError(f"{file} is not a sample file: it has other columns", field="samples")
            for number in range(reader.num_row_groups):
                yield from _rows(reader.read_row_group(number, use_threads=False))


_ARRAYS = ("tokens", "sampled", "logprobs")
_OF_UNIT = tuple(SampledUnit.__dataclass_fields__)


def _rows(table: Any) -> Iterator[Sample]:
    """Yield the rows of a row group. Raises ConfigError if a log probability is not finite."""
    columns = {name: table.column(name) for name in _ARRAYS}
    rest = table.drop_columns(list(_ARRAYS)).to_pylist()
    for place, stored in enumerate(rest):
        # Older files lack these two columns; values in the file replace them.
        row = {"integrity": "suspect" if stored["suspect"] else "ok", "confirmation": "", **stored}
        tokens, sampled, logprobs = (columns[name][place].values.to_numpy(zero_copy_only=False) for name in _ARRAYS)
        if not isfinite(float(logprobs.sum())):
            fault = "has a log probability that is not finite: export the run's samples again"
            raise ConfigError(f"{row['instance_id']} attempt {row['attempt']} {fault}", field="samples")
        unit = SampledUnit(**{name: row[name] for name in _OF_UNIT})
        calls = [CallSpan(**call) for call in row["calls"]]
        yield Sample(unit, row["sample"], tokens, sampled, logprobs, calls)
