from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.datasets.records import read_json, read_jsonl
from swe_argo.steps.errors import ConfigError
from tests.steps.datasets.sample_rows import PROPERTY

LINE_BREAKS_OF_STR_SPLITLINES = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"


def _file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("character", "\u2028\u2029\x85")
def test_unicode_separator_ends_no_row(tmp_path: Path, character: str) -> None:
    value = {"patch": f"a{character}b"}
    assert character in json.dumps(value, ensure_ascii=False)
    path = _file(tmp_path, json.dumps(value, ensure_ascii=False).encode() + b"\n")
    assert [parsed for _, parsed in read_jsonl(path, "dataset")] == [value]


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = _file(tmp_path, b'\n{"a": 1}\n \t\n\r\n{"a": 2}\r\n')
    assert read_jsonl(path, "dataset") == [("rows.jsonl, row 2", {"a": 1}), ("rows.jsonl, row 5", {"a": 2})]


def test_bom_is_skipped(tmp_path: Path) -> None:
    assert [parsed for _, parsed in read_jsonl(_file(tmp_path, b"\xef\xbb\xbf1\n2"), "dataset")] == [1, 2]
    assert read_json(_file(tmp_path, b"\xef\xbb\xbf[1]"), "dataset") == [1]


@pytest.mark.parametrize("broken", [b"{'a': 1}", b'{"a": 1', b"{} {}", b"[" * 100_000])
def test_invalid_json_line_is_located(tmp_path: Path, broken: bytes) -> None:
    path = _file(tmp_path, b'{"a": 1}\n\n' + broken + b"\n")
    with pytest.raises(ConfigError, match=r"^dataset: rows\.jsonl, row 3: not JSON"):
        read_jsonl(path, "dataset")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nothing\.json"):
        read_json(tmp_path / "nothing.json", "dataset")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_json(tmp_path, "dataset")


def test_non_utf8_bytes_are_kept(tmp_path: Path) -> None:
    (_, parsed), *_ = read_jsonl(_file(tmp_path, b'{"model_patch": "caf\xe9\xff"}\n'), "dataset")
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
    parsed = read_jsonl(_file(tmp_path, b"".join(lines)), "dataset")
    assert [value for _, value in parsed] == values


@given(data=st.binary(max_size=60))
@PROPERTY
def test_any_bytes_parse_or_are_refused(tmp_path: Path, data: bytes) -> None:
    reason = "dataset: rows.jsonl, row 1"
    try:
        read_jsonl(_file(tmp_path, data), "dataset")
    except ConfigError as error:
        reason = error.reason
    assert reason.startswith("dataset: rows.jsonl, row ")
    assert len(reason.splitlines()) == 1
