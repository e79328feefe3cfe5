from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swe_argo.steps.datasets.files import read_file, read_folder
from swe_argo.steps.datasets.load import load
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows
from tests.steps.datasets.sample_rows import jsonl, row

ROWS = [row("acme__anvil-1", problem_statement="a\u2028b\r\nc"), row("acme__anvil-2", hints_text="")]


def _parquet(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_are_equal_in_every_format(tmp_path: Path) -> None:
    as_json = tmp_path / "rows.json"
    as_json.write_text(json.dumps(ROWS), encoding="utf-8")
    raw = tmp_path / "raw.jsonl"
    raw.write_bytes(b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n\n" for item in ROWS))
    paths = [as_json, raw, jsonl(tmp_path / "rows.jsonl", *ROWS), _parquet(tmp_path / "rows.parquet")]
    loaded = [load(str(path), "test") for path in paths]
    assert {digest_rows(item.rows) for item in loaded} == {digest_rows(loaded[0].rows)}
    for item in loaded:
        assert [loaded_row["instance_id"] for loaded_row in item.rows] == ["acme__anvil-1", "acme__anvil-2"]
        assert item.rows[0]["problem_statement"] == "a\u2028b\r\nc"
        assert item.rows[0]["patch"] == ROWS[0]["patch"]
        assert item.revision is None


def test_parquet_rows_are_numbered(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "rows.parquet", [row("a__b-1"), row("a__b-2", PASS_TO_PASS="nonsense")])
    with pytest.raises(ConfigError, match=r"^dataset: rows\.parquet, row 2: PASS_TO_PASS is not a JSON list: "):
        load(str(path), "test")


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    whole = _parquet(tmp_path / "whole.parquet").read_bytes()
    path = tmp_path / "rows.parquet"
    for data in (
        b"",
        b"no parquet",
        whole[:-20],
        whole[: len(whole) // 2] + b"\0" * 40 + whole[len(whole) // 2 + 40 :],
    ):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"^dataset: rows\.parquet: not a readable parquet file") as caught:
            list(read_file(path))
        assert "\n" not in caught.value.reason


def test_list_columns_stay_lists(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "rows.parquet", [row(FAIL_TO_PASS=["a", "b"], PASS_TO_PASS=["c"])])
    assert load(str(path), "test").rows[0]["FAIL_TO_PASS"] == ["a", "b"]


def test_partition_adds_no_column(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "version=9" / "rows.parquet")
    assert load(str(path), "test").rows[0]["version"] == "1.0"


def test_json_that_is_no_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("{}")
    with pytest.raises(ConfigError, match="not a list of rows"):
        list(read_file(path))


@pytest.mark.parametrize("name", ["test.parquet", "test-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"])
def test_folder_of_splits_is_read(tmp_path: Path, name: str) -> None:
    _parquet(tmp_path / name)
    _parquet(tmp_path / name.replace("test", "dev"), ROWS[:1])
    assert len(load(str(tmp_path), "test").rows) == 2
    assert len(load(str(tmp_path), "dev").rows) == 1
    with pytest.raises(ConfigError, match=r"^split: .* has no split 'train'; it has dev, test$"):
        load(str(tmp_path), "train")


def test_split_parts_are_ordered(tmp_path: Path) -> None:
    _parquet(tmp_path / "data/test-00001-of-00002.parquet", [row("a__b-2")])
    _parquet(tmp_path / "data/test-00000-of-00002.parquet", [row("a__b-1")])
    assert [loaded_row["instance_id"] for loaded_row in load(str(tmp_path), "test").rows] == ["a__b-1", "a__b-2"]


def test_folder_needs_dataset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains no dataset"):
        list(read_folder(tmp_path, "test"))


def test_save_to_disk_folders_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the datasets library, which writes such folders")
    table = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict(test=table, dev=table.select([1])).save_to_disk(tmp_path / "all")
    table.save_to_disk(tmp_path / "one", num_shards=2)
    for folder in ("all", "one"):
        assert digest_rows(load(str(tmp_path / folder), "test").rows) == digest_rows(
            load(str(_parquet(tmp_path / "r.parquet")), "x").rows
        )
    assert [loaded_row["instance_id"] for loaded_row in load(str(tmp_path / "all"), "dev").rows] == ["acme__anvil-2"]
    with pytest.raises(ConfigError, match=r"has no split 'train'; it has dev, test$"):
        load(str(tmp_path / "all"), "train")
    next((tmp_path / "one").glob("*.arrow")).unlink()
    with pytest.raises(ConfigError, match="is not a complete save_to_disk folder"):
        load(str(tmp_path / "one"), "test")
