"""Rows of SWE-smith: how they are recognised, and each fact of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families import issue_columns
from swe_argo.steps.families.swesmith import rows
from tests.paths import needs_data
from tests.steps.families.swesmith.make_rows import REAL, make_row, read_row


def test_rows_are_recognised_by_columns() -> None:
    assert rows.COLUMNS.match(make_row())
    assert not rows.COLUMNS.match(make_row(test_patch="", version="1"))  # SWE-bench with an image
    assert not rows.COLUMNS.match(dict.fromkeys(make_row().keys() - {"image_name"}))


def test_row_has_every_fact() -> None:
    row = make_row()
    assert rows.instance_id(row) == rows.branch(row) == "Octo-Org__spoon.knife.0123abcd.lm_rewrite__a1b2c3d4"
    assert rows.repo(row) == "Octo-Org/spoon.knife"
    assert rows.profile_key(row) == "Octo-Org__spoon.knife.0123abcd"
    assert rows.base_commit(row) == "b" * 40
    assert issue_columns.listed_tests(row | {"FAIL_TO_PASS": '["a::b"]'})[0] == ["a::b"]
    assert rows.list_test_files(row) == ["tests/test_a.py", "tests/test_b.py"]
    assert rows.list_test_files(make_row(FAIL_TO_PASS=["../dev/t/a.py::b", "TestGo"], PASS_TO_PASS=[])) == ["t/a.py"]


@pytest.mark.parametrize(
    "name",
    [
        "swebench/swesmith.x86_64.octo-org_1776_spoon.knife.0123abcd",
        "jyangballin/swesmith.x86_64.octo-org_1776_spoon.knife.0123abcd:latest",
        "docker.io/jyangballin/swesmith.x86_64.Octo-Org__spoon.knife.0123abcd",
        "swesmith.x86_64.Octo-Org__spoon.knife.0123abcd",
    ],
)
def test_image_name_forms_are_unified(name: str) -> None:
    expected = "swebench/swesmith.x86_64.octo-org_1776_spoon.knife.0123abcd"
    assert rows.image(make_row(image_name=name)) == expected


def test_foreign_image_is_lower_case() -> None:
    assert rows.image(make_row(image_name="Registry.test/Mirror/a:V1")) == "registry.test/mirror/a:v1"


def test_problem_statement_may_be_empty() -> None:
    row = make_row(problem_statement="")
    assert rows.problem_statement(row) == ""
    del row["problem_statement"], row["base_commit"]
    assert rows.problem_statement(row) == ""
    assert rows.base_commit(row) == ""


def test_gold_patch_reverses_the_bug() -> None:
    gold = rows.gold_patch(make_row())
    assert gold.endswith("@@ -1 +1 @@\n-x = 2\n+x = 1\n")
    assert "index 2..1 100644" in gold


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"instance_id": "../a"}, "instance_id '../a' cannot be a file name"),
        ({"repo": "a/b"}, "repo 'a/b' is not swesmith/<owner>__<repo>.<commit>"),
        ({"image_name": ""}, "image_name '' is not an image"),
        ({"patch": " \n"}, "patch is empty"),
        ({"patch": "words"}, "patch is not a unified diff"),
        ({"patch": None}, "patch is null, not text"),
        ({"FAIL_TO_PASS": "a::b"}, "FAIL_TO_PASS is not a JSON list"),
        ({"PASS_TO_PASS": {"a": 1}}, "PASS_TO_PASS is not a JSON list: it is an object"),
        ({"FAIL_TO_PASS": [], "PASS_TO_PASS": "[]"}, "list no tests"),
        ({"problem_statement": 3}, "problem_statement is a number, not text"),
    ],
)
def test_bad_row_is_one_line(columns: dict[str, Any], word: str) -> None:
    row = make_row(**columns)
    reads = (
        rows.instance_id,
        rows.repo,
        rows.image,
        rows.gold_patch,
        issue_columns.listed_tests,
        rows.problem_statement,
    )
    with pytest.raises(ConfigError) as error:
        _ = [read(row) for read in reads]
    assert word in error.value.reason
    assert str(row["instance_id"]) in error.value.reason
    assert "\n" not in error.value.reason


@needs_data
def test_real_rows_have_every_column() -> None:
    whole = [json.loads(line) for line in (REAL / "rows.jsonl").read_text().splitlines()]
    whole += [read_row(folder) for folder in sorted((REAL / "rebuilt").iterdir())]
    assert len(whole) == 3
    for row in whole:
        assert rows.COLUMNS.match(row)
        assert row["instance_id"].startswith(rows.profile_key(row))
        assert rows.image(row).startswith("swebench/swesmith.x86_64.")
        assert "_1776_" in rows.image(row)
        assert rows.gold_patch(row) != row["patch"]
        assert rows.list_test_files(row)
        assert rows.problem_statement(row)
