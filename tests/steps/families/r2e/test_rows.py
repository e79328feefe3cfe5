"""Rows of R2E-Gym: how they are recognised, and each fact of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.ids import is_run_id, is_safe_id
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.r2e import rows
from tests.paths import DATA, needs_data

COMMIT = "f0d74880deec8fcd982bce639c93c5e130d41198"
SWEBENCH = {"repo", "instance_id", "base_commit", "patch", "test_patch", "problem_statement", "version"}


def make_row(**columns: Any) -> dict[str, Any]:
    row = {
        "repo_name": "aiohttp",
        "docker_image": f"namanjain12/aiohttp_final:{COMMIT}",
        "commit_hash": COMMIT,
        "problem_statement": "text [ISSUE]\n**Title:** x\n[/ISSUE] text",
        "prompt": "the gold patch",
        "expected_output_json": '{"A.b": "PASSED"}',
        "modified_files": ["HISTORY.rst", "aiohttp/web.py", "tests/data.txt", "aiohttp/web_test.py"],
    }
    return row | columns


def test_rows_are_recognised_by_columns() -> None:
    assert rows.COLUMNS.match(make_row())
    assert not rows.COLUMNS.match(
        dict.fromkeys(SWEBENCH | {"docker_image", "parsed_commit"})
    )  # R2E-Gym/SWE-Bench-Verified
    assert not rows.COLUMNS.match(dict.fromkeys(SWEBENCH | {"image_name", "FAIL_TO_PASS", "PASS_TO_PASS"}))


@needs_data
@pytest.mark.parametrize("folder", ["aiohttp_f0d74880", "pandas_c400bd31"])
def test_real_row_has_every_fact(folder: str) -> None:
    row = json.loads((DATA / "r2e" / folder / "row_real.json").read_text())
    assert rows.COLUMNS.match(row)
    assert rows.repo(row) == folder.partition("_")[0]
    assert rows.image(row).startswith(f"namanjain12/{rows.repo(row)}_final:")
    assert len(rows.expected_statuses(row)) in (8, 64)
    if "problem_statement" in row:
        assert rows.problem_statement(row).startswith("**Title:** `MultiIndex")
        assert rows.list_test_files(row) == ["pandas/tests/indexing/multiindex/test_multiindex.py"]


def test_instance_id_hides_the_fix() -> None:
    name = rows.instance_id(make_row())
    assert name == rows.instance_id(make_row(problem_statement=""))
    assert name.startswith("r2e__aiohttp-")
    assert is_run_id(name)
    assert is_safe_id(name)
    assert not any(COMMIT[at : at + 7] in name for at in range(34))


@given(st.lists(st.tuples(st.sampled_from(sorted(rows.REPOS)), st.text("0123456789abcdef", min_size=40, max_size=40))))
def test_instance_ids_are_unique(commits: list[tuple[str, str]]) -> None:
    ids = {rows.instance_id(make_row(repo_name=repo, commit_hash=commit)) for repo, commit in commits}
    assert len(ids) == len(set(commits))


def test_problem_statement_is_the_issue() -> None:
    assert rows.problem_statement(make_row()) == "**Title:** x"
    assert rows.problem_statement(make_row(problem_statement="no marks")) == "no marks"


def test_test_files_match_r2e_gym() -> None:
    assert rows.list_test_files(make_row()) == ["tests/data.txt", "aiohttp/web_test.py"]
    assert rows.is_test_path("a/test_b.py")
    assert rows.is_test_path("Tests/b.py")
    assert not rows.is_test_path("a/testing.py")
    assert not rows.is_test_path("a/contest/latest_b.py")


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"repo_name": "django"}, "repo_name 'django' is not one of aiohttp"),
        ({"commit_hash": "main"}, "commit_hash 'main' is not 40 hex digits"),
        ({"docker_image": "a b"}, "docker_image 'a b' is not an image"),
        ({"expected_output_json": "{"}, "expected_output_json is not JSON"),
        ({"expected_output_json": "[]"}, "expected_output_json is not a map"),
        ({"expected_output_json": "{}"}, "lists no tests"),
        ({"expected_output_json": {"a": "MAYBE"}}, "expected_output_json is not a map"),
        ({"modified_files": [1]}, "modified_files contains a number, not only text"),
        ({"problem_statement": None}, "problem_statement is null, not text"),
    ],
)
def test_bad_row_is_one_line(columns: dict[str, Any], word: str) -> None:
    row = make_row(**columns)
    with pytest.raises(ConfigError) as error:
        _ = [read(row) for read in (rows.image, rows.expected_statuses, rows.list_test_files, rows.problem_statement)]
    assert word in error.value.reason
    assert "\n" not in error.value.reason
    if "repo_name" not in columns and "commit_hash" not in columns:
        assert rows.instance_id(row) in error.value.reason


def test_missing_column_is_named() -> None:
    row = make_row()
    del row["expected_output_json"]
    with pytest.raises(ConfigError, match="has no column expected_output_json"):
        rows.expected_statuses(row)
