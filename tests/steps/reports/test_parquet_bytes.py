"""Parquet files that are read in memory."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from swe_argo.steps.reports.parquet_bytes import make_table, read_parquet, write_parquet

PROGRAM = """
import os, sys, pyarrow as pa
from swe_argo.steps.reports.parquet_bytes import make_table, read_parquet, write_parquet
before = len(os.listdir("/proc/self/task"))
schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
table = make_table([{"a": "x", "b": number} for number in range(1000)], schema)
assert read_parquet(write_parquet(table)).num_rows == 1000
print(len(os.listdir("/proc/self/task")) - before, "pandas" in sys.modules)
"""


def test_parquet_starts_no_threads() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert result.stdout == "0 False\n"


SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("truth", pa.bool_()),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)
ROWS = [
    {"text": "2026-01-01\n\u2028\U0001f600\x00é", "whole": 2**62 + 1, "real": 1 / 3, "truth": True},
    {"list": ["a", ""], "map": {"solve.agent": 2.5e-300, "": 1}},
    {"list": [], "map": {}, "real": 2, "whole": None, "text": ""},
    {},
]


@pytest.mark.parametrize("rows", [ROWS, ROWS * 1000, [{}], [], [*ROWS, {"real": float("inf")}]])
def test_make_table_equals_that_of_arrow(rows: list[dict[str, object]]) -> None:
    table = make_table(rows, SCHEMA)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist()
    assert read_parquet(write_parquet(table)).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("row", [{"whole": "1"}, {"whole": 1.5}, {"whole": 2**64}, {"text": "\ud800"}, {"other": 1}])
def test_make_table_refuses_unfit_value(row: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make_table([row], SCHEMA)


@pytest.mark.parametrize("data", [b"", b"no parquet", b"PAR1\x9b\x00\x00\x00PAR1"])
def test_broken_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_parquet(data)
