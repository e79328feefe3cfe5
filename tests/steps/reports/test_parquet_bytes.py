"""Parquet files that are read in memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steps.reports.parquet_bytes import read_parquet

PROGRAM = """
import io, os, pyarrow, pyarrow.parquet
from steps.reports.parquet_bytes import read_parquet
data = io.BytesIO()
pyarrow.parquet.write_table(pyarrow.table({"a": ["x"] * 1000, "b": list(range(1000))}), data)
before = len(os.listdir("/proc/self/task"))
assert read_parquet(data.getvalue()).num_rows == 1000
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_reading_begins_no_thread_that_the_end_of_a_process_could_meet() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("data", [b"", b"no parquet", b"PAR1\x9b\x00\x00\x00PAR1"])
def test_a_broken_file_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_parquet(data)
