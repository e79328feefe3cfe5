"""Real rows of the families: they are recognised, can be graded, and hide their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swe_argo.steps.datasets.load import load
from swe_argo.steps.families import rows
from tests.paths import DATA, needs_data
from tests.steps.families.sample_rows import read_lines, read_swesmith_row

pytestmark = needs_data


def _r2e_rows() -> list[dict[str, Any]]:
    """Return the one real row: two files have its columns."""
    folder = DATA / "r2e" / "aiohttp_f0d74880"
    real, rebuilt = (json.loads((folder / f"row_{name}.json").read_text()) for name in ("real", "rebuilt"))
    return [{**real, **rebuilt, "problem_statement": "[ISSUE]\nIt fails.\n[/ISSUE]", "prompt": "its gold patch"}]


def _smith_rows() -> list[dict[str, Any]]:
    rebuilt = sorted((DATA / "swesmith" / "rebuilt").iterdir())
    return [*read_lines("swesmith/rows.jsonl"), *map(read_swesmith_row, rebuilt)]


FAMILIES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "r2e": _r2e_rows,
    "swesmith": _smith_rows,
    "swegym": lambda: read_lines("swegym/rows.jsonl"),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_real_rows_are_recognised(family: str, suffix: str, tmp_path: Path) -> None:
    source = FAMILIES[family]()
    file = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(source), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in source))
    loaded = load(str(file), "train").rows
    assert len(loaded) == len(source)
    for row in loaded:
        assert rows.family_name(row) == family
        assert rows.why_not_gradeable(row) is None
        assert rows.to_answer(row).family == family
        instance = rows.to_instance(row, hints=False)
        assert row["patch"]
        text = instance.to_bytes().decode()
        assert [secret for secret in ("diff --git", "expected_output", "FAIL_TO_PASS") if secret in text] == []
