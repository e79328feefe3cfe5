"""Rows from files, folders and buckets, and JSON Lines as they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets.files import fetch_inputs, read_file, read_folder
from swe_argo.steps.datasets.load import load
from swe_argo.steps.datasets.records import read_json, read_lines
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.store import open_store
from tests.steps.datasets.sample_rows import PROPERTY, jsonl, row

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
    half = len(whole) // 2
    for data in (b"", b"no parquet", whole[:-20], whole[:half] + b"\0" * 40 + whole[half + 40 :]):
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


LINE_BREAKS_OF_STR_SPLITLINES = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"


def _file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    return path


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = _file(tmp_path, b'\n{"a": 1}\n \t\n\r\n{"a": 2}\r\n')
    assert list(read_lines(path, "dataset")) == [("rows.jsonl, row 2", {"a": 1}), ("rows.jsonl, row 5", {"a": 2})]


def test_bom_is_skipped(tmp_path: Path) -> None:
    assert [parsed for _, parsed in list(read_lines(_file(tmp_path, b"\xef\xbb\xbf1\n2"), "dataset"))] == [1, 2]
    assert read_json(_file(tmp_path, b"\xef\xbb\xbf[1]"), "dataset") == [1]


@pytest.mark.parametrize("broken", [b"{'a': 1}", b'{"a": 1', b"{} {}", b"[" * 100_000])
def test_invalid_json_line_is_located(tmp_path: Path, broken: bytes) -> None:
    path = _file(tmp_path, b'{"a": 1}\n\n' + broken + b"\n")
    with pytest.raises(ConfigError, match=r"^dataset: rows\.jsonl, row 3: not JSON"):
        list(read_lines(path, "dataset"))


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nothing\.json"):
        read_json(tmp_path / "nothing.json", "dataset")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_json(tmp_path, "dataset")


def test_non_utf8_bytes_are_kept(tmp_path: Path) -> None:
    (_, parsed), *_ = list(read_lines(_file(tmp_path, b'{"model_patch": "caf\xe9\xff"}\n'), "dataset"))
    assert parsed["model_patch"].encode("utf-8", "surrogateescape") == b"caf\xe9\xff"


TEXT = st.text(
    alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(LINE_BREAKS_OF_STR_SPLITLINES)),
    max_size=20,
)
VALUES = st.lists(st.dictionaries(TEXT, TEXT | st.none() | st.integers(), max_size=3), max_size=5)


@given(values=VALUES, ascii_only=st.booleans(), end=st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n \n"]))
@PROPERTY
def test_json_lines_round_trip(tmp_path: Path, values: list[dict[str, Any]], ascii_only: bool, end: bytes) -> None:
    lines = [json.dumps(value, ensure_ascii=ascii_only).encode() + end for value in values]
    parsed = list(read_lines(_file(tmp_path, b"".join(lines)), "dataset"))
    assert [value for _, value in parsed] == values


@given(data=st.binary(max_size=60))
@PROPERTY
def test_any_bytes_parse_or_are_refused(tmp_path: Path, data: bytes) -> None:
    reason = "dataset: rows.jsonl, row 1"
    try:
        list(read_lines(_file(tmp_path, data), "dataset"))
    except ConfigError as error:
        reason = error.reason
    assert reason.startswith("dataset: rows.jsonl, row ")
    assert len(reason.splitlines()) == 1


def test_bucket_inputs_are_fetched(bucket: str) -> None:
    files = {"in/preds.jsonl": b"one", "in/trajs/a.json": b"a", "in/trajs/b/c.json": b"c"}
    open_store(f"s3://{bucket}").put_many(files)
    spec = RunSpec(
        agent=AgentSpec(predictions=f"s3://{bucket}/in/preds.jsonl", trajectories=f"s3://{bucket}/in/trajs/"),
        answers="here.json",
    )
    with fetch_inputs(spec) as here:
        predictions, trajectories = Path(here.agent.predictions or ""), Path(here.agent.trajectories or "")
        assert (predictions.name, predictions.read_bytes()) == ("preds.jsonl", b"one")
        names = {str(path.relative_to(trajectories)) for path in trajectories.rglob("*") if path.is_file()}
        assert names == {"a.json", "b/c.json"}
        assert (here.answers, here.dataset) == ("here.json", "mini")
    assert not predictions.exists()
    assert spec.agent.predictions == f"s3://{bucket}/in/preds.jsonl"


def test_bucket_input_can_be_at_root(bucket: str) -> None:
    open_store(f"s3://{bucket}").put("rows.jsonl", b"{}")
    with fetch_inputs(RunSpec(dataset=f"s3://{bucket}/rows.jsonl")) as here:
        assert Path(here.dataset).read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("/nothing.jsonl", "^agent.predictions: s3://BUCKET/nothing.jsonl"),
        ("/in/nothing/", "^agent.predictions: s3://BUCKET/in/nothing/"),
        ("", "names a bucket, not a file"),
    ],
)
def test_missing_bucket_input_is_named(bucket: str, key: str, reason: str) -> None:
    spec = RunSpec(agent=AgentSpec(predictions=f"s3://{bucket}{key}"))
    with pytest.raises(ConfigError, match=reason.replace("BUCKET", bucket)), fetch_inputs(spec):
        pass
