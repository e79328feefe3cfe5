"""The real rows of every family, as their datasets have them: read, known by their columns, gradeable."""

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

pytestmark = needs_data


def _read_json(path: str) -> dict[str, Any]:
    return dict(json.loads((DATA / path).read_text()))


def _read_lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / path).read_text().splitlines()]


def _r2e_rows() -> list[dict[str, Any]]:
    """What is known of one real row stands in two files."""
    rebuilt, real = (_read_json(f"r2e/aiohttp_f0d74880/row_{name}.json") for name in ("rebuilt", "real"))
    return [{**real, **rebuilt, "problem_statement": "[ISSUE]\nIt fails.\n[/ISSUE]", "prompt": "its gold patch"}]


def _smith_rows() -> list[dict[str, Any]]:
    rebuilt = sorted((DATA / "swesmith" / "rebuilt").glob("*/row.json"))
    return [*_read_lines("swesmith/rows.jsonl"), *(json.loads(path.read_text()) for path in rebuilt)]


FAMILIES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "r2e": _r2e_rows,
    "swesmith": _smith_rows,
    "swegym": lambda: _read_lines("swegym/rows.jsonl"),
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
        assert "diff --git" not in text
        assert "expected_output" not in text
        assert "FAIL_TO_PASS" not in text


def test_row_digest_ignores_file_format(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_text(json.dumps(_r2e_rows()[0]) + "\n")
    row = _r2e_rows()[0]
    value = row["expected_output_json"]
    row["expected_output_json"] = json.loads(value) if isinstance(value, str) else json.dumps(value)
    (tmp_path / "value.jsonl").write_text(json.dumps(row) + "\n")
    first, second = (rows.digest_rows(load(str(tmp_path / name), "x").rows) for name in ("text.jsonl", "value.jsonl"))
    assert first == second
