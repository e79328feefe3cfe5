"""Reading 5,000 rows of each family from a file: CPU time and memory, R2E-Gym's rows of 285 kB included."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.paths import DATA, ROOT
from tests.steps.datasets.sample_rows import row as make_swebench
from tests.steps.families.sample_rows import rebench_v2 as v2_row
from tests.steps.families.sample_rows import swegym as make_swegym
from tests.steps.families.sample_rows import swesmith as make_swesmith

ROWS = 5000
_AT_ONCE = 100
# Loading alone: importing the libraries is every program's, and taken off the memory too.
_LOAD = """
import json, resource, sys, time
import pyarrow.parquet, swebench
from swe_argo.steps.datasets.load import load
from swe_argo.steps.families.family import load_family
for name in ("r2e", "swesmith", "rebench", "swegym", "swebench"):
    load_family(name)
began = time.process_time()
loaded = load(sys.argv[1], "train").rows
seconds = time.process_time() - began
gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([len(loaded), seconds, gib]))
"""


def measure() -> dict[str, float]:
    """The slowest family's seconds, the largest one's GiB, and what each took."""
    figures = {}
    for name, columns in _samples().items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.parquet")
            _write(file, columns, name)
            command = [sys.executable, "-c", _LOAD, str(file)]
            output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        count, seconds, gib = json.loads(output)
        assert count == ROWS, output
        figures[f"rows_5000_{name}_s"], figures[f"rows_5000_{name}_gib"] = seconds, gib
    most_s = max(value for figure, value in figures.items() if figure.endswith("_s"))
    most_gib = max(value for figure, value in figures.items() if figure.endswith("_gib"))
    return {"rows_5000_s": most_s, "rows_5000_gib": most_gib, **figures}


def _samples() -> dict[str, dict[str, Any]]:
    """A row of each family, as large as real ones are."""
    tests = [f"tests/test_module_{number}.py::TestClass::test_something_{number}[a-b]" for number in range(120)]
    return {
        **_r2e(),
        "swesmith": make_swesmith(PASS_TO_PASS=tests),
        "rebench": v2_row(PASS_TO_PASS=tests),
        "swegym": make_swegym(PASS_TO_PASS=tests),
        "swebench": make_swebench(PASS_TO_PASS=json.dumps(tests)),
    }


def _r2e() -> dict[str, dict[str, Any]]:
    """The real row, filled up to 285 kB; nothing where it is not there."""
    files = [DATA / "r2e" / "aiohttp_f0d74880" / f"row_{name}.json" for name in ("real", "rebuilt")]
    if not all(file.exists() for file in files):
        return {}
    columns = {key: value for file in files for key, value in json.loads(file.read_text()).items()}
    commit = {**json.loads(columns["parsed_commit_content"]), "padding": "x" * 100_000}
    more = {"problem_statement": "[ISSUE]x[/ISSUE]", "prompt": "p" * 20_000, "execution_result_content": "e" * 160_000}
    return {"r2e": columns | more | {"parsed_commit_content": json.dumps(commit)}}


def _write(file: Path, columns: dict[str, Any], name: str) -> None:
    rows = _numbered(columns, name)
    batch = pa.Table.from_pylist([next(rows)])
    with pq.ParquetWriter(file, batch.schema, compression="zstd") as writer:
        writer.write_table(batch)
        while chunk := list(islice(rows, _AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(chunk, schema=batch.schema))


def _numbered(columns: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Rows that differ in what tells them apart."""
    for number in range(ROWS):
        if name == "r2e":
            commit = f"{number:040x}"
            yield columns | {
                "commit_hash": commit,
                "docker_image": f"namanjain12/{columns['repo_name']}_final:{commit}",
            }
        elif name == "swesmith":
            yield columns | {"instance_id": f"{columns['instance_id']}{number}"}
        else:
            yield columns | {"instance_id": f"{columns['instance_id'].rpartition('-')[0]}-{number}"}
