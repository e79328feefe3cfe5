"""Rows of SWE-rebench: how they are recognised, and each fact of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.families import issue_columns
from swe_argo.steps.families import rows as any_rows
from swe_argo.steps.families.rebench import rows
from swe_argo.steps.families.rebench.family import FAMILY
from swe_argo.steps.families.rebench.parsers import NAMES, find_parser
from tests.steps.families.rebench.make_rows import COMMIT, TEST_PATCH, v1_row, v2_row, with_config


def refusal_reason(row: dict[str, Any]) -> str | None:
    """As ``plan`` asks."""
    return any_rows.why_not_gradeable(any_rows.normalise(row, "r"))


@pytest.mark.parametrize("row", [v1_row(), v2_row()], ids=["v1", "v2"])
def test_rows_are_recognised_by_columns(row: dict[str, Any]) -> None:
    normalised = any_rows.normalise(row, "r")
    assert any_rows.family_name(normalised) == "rebench"
    assert any_rows.why_not_gradeable(normalised) is None
    assert not FAMILY.recognizes({column: value for column, value in row.items() if column != "install_config"})
    instance = any_rows.to_instance(normalised, hints=False).to_bytes().decode()
    assert "diff --git" not in instance
    assert "test_a" not in instance
    assert "makes it 2" not in instance
    answer = any_rows.to_answer(normalised).model_dump()
    assert answer["source"]["test_patch"] == TEST_PATCH
    assert "patch" not in answer["source"]


def test_row_forms_have_one_digest() -> None:
    row = v2_row()
    as_text = row | {name: json.dumps(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS", "install_config")}
    assert any_rows.digest_rows([any_rows.normalise(as_text, "r")]) == any_rows.digest_rows(
        [any_rows.normalise(row, "r")]
    )
    assert refusal_reason(as_text) is None


def test_v2_row_has_every_fact() -> None:
    row = v2_row()
    assert rows.workdir(row) == "/calc"
    assert rows.image(row) == "docker.io/swerebenchv2/acme-calc:7-ad6bff3"
    assert rows.image(v2_row(image_name=None, image_url="x/y:z")) == "x/y:z"
    assert rows.base_commit(row) == COMMIT
    assert (rows.version(row), issue_columns.hints_text(row)) == ("", "")
    assert rows.test_commands(row) == ["python -m pytest -rA tests"]
    assert rows.test_commands(with_config(row, test_cmd=["make", "", "ctest"])) == ["make", "ctest"]
    assert rows.test_commands(with_config(row, test_cmd='["make", "ctest"]')) == ["make", "ctest"]
    assert rows.test_commands(with_config(row, test_cmd="[ -f x ] && make")) == ["[ -f x ] && make"]
    assert rows.test_commands(with_config(row, test_cmd="[" * 100_000)) == ["[" * 100_000]
    assert rows.install_command(row) == ""
    instance = any_rows.to_instance(any_rows.normalise(row, "r"), hints=False)
    assert (instance.workdir, instance.repo) == ("/calc", "Acme/calc")


def test_v1_row_has_every_fact() -> None:
    row = v1_row()
    assert rows.workdir(row) == "/testbed"
    assert rows.image(row) == "swerebench/sweb.eval.x86_64.acme_1776_calc-7"
    assert rows.image(v1_row(docker_image="")) == "swerebench/sweb.eval.x86_64.acme_1776_calc-7:latest"
    assert rows.image(v1_row(image_name="a/b:c")) == "a/b:c"  # of the leaderboard
    assert rows.version(row) == "1.2"
    assert issue_columns.hints_text(row) == "see a.py"
    assert rows.install_command(row) == "LANG=C.UTF-8 LC_ALL=C.UTF-8 echo installed"
    assert rows.test_commands(row)[0].startswith("LANG=C.UTF-8 LC_ALL=C.UTF-8 pytest --no-header")
    assert rows.test_commands(with_config(row, test_cmd=["make", "pytest"])) == ["LANG=C.UTF-8 LC_ALL=C.UTF-8 pytest"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (v2_row(base_commit="main"), "base_commit 'main' is not a commit hash"),
        (v2_row(image_name="--rm x"), "image '--rm x' is not an image name"),
        (v2_row(image_name={"a": 1}), "is not an image name"),
        (v2_row(image_name=None, image_url=None), "are empty: no image"),
        (v2_row(repo="acme"), "repo 'acme' is not <owner>/<repo>"),
        (v2_row(repo="acme/proc"), "an image cannot have it at /proc"),
        (v2_row(patch=""), "patch is not a git diff"),
        (v2_row(test_patch=None), "test_patch is null, not text"),
        (v2_row(test_patch=f"{TEST_PATCH}\ud800"), "test_patch is not UTF-8 text"),
        (v2_row(FAIL_TO_PASS=["\udce9"]), "FAIL_TO_PASS is not UTF-8 text"),
        (v2_row(FAIL_TO_PASS=[], PASS_TO_PASS="[]"), "list no tests"),
        (with_config(v2_row(), test_cmd=[]), "install_config.test_cmd is empty"),
        (with_config(v2_row(), test_cmd="a\ud800"), "install_config.test_cmd is not UTF-8 text"),
        (with_config(v2_row(), test_cmd=[1]), "install_config.test_cmd is neither a command nor a list"),
        (with_config(v1_row(), install=7), "install_config.install is neither a command nor a list"),
        (with_config(v2_row(), log_parser=None), "install_config.log_parser is missing"),
        (with_config(v2_row(), log_parser="parse_log_julia"), "'parse_log_julia' is not supported; 58 parsers are"),
        (with_config(v1_row(), log_parser="parse_log_gotest"), "'parse_log_gotest' is not supported; 3 parsers are"),
    ],
)
def test_ungradeable_row_is_one_line(row: dict[str, Any], word: str) -> None:
    reason = refusal_reason(row)
    assert reason is not None
    assert word in reason
    assert "acme__calc-7" in reason
    assert "\n" not in reason


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_named_parser_exists(name: str) -> None:
    assert find_parser(with_config(v2_row(), log_parser=name))("") == {}
