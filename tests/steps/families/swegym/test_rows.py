"""Rows of SWE-Gym: how they are recognised, and each fact of them."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families import issue_columns
from swe_argo.steps.families.swegym import rows
from swe_argo.steps.families.swegym.family import FAMILY
from swe_argo.steps.families.swegym.script import eval_script
from swe_argo.steps.families.swegym.specs import spec_of
from tests.paths import needs_data
from tests.steps.families.swegym.make_rows import make_row, read_rows


def refusal_reason(row: dict[str, Any]) -> str | None:
    """As ``plan`` asks."""
    return FAMILY.why_not_gradeable(FAMILY.normalise(row, "r"))


def test_rows_are_recognised_by_columns() -> None:
    assert rows.COLUMNS.match(make_row())
    assert not rows.COLUMNS.match(make_row(environment_setup_commit=""))  # classic rows of SWE-bench
    assert not rows.COLUMNS.match(make_row(image="", eval_script=""))  # swebench 5
    assert not rows.COLUMNS.match(make_row(install_config={}))  # SWE-rebench
    assert not rows.COLUMNS.match(dict.fromkeys(make_row().keys() - {"test_patch"}))


def test_row_has_every_fact() -> None:
    row = make_row()
    assert rows.instance_id(row) == "getmoto__moto-7365"
    assert rows.repo(row) == "getmoto/moto"
    assert rows.version(row) == "5.0"
    assert rows.base_commit(row).startswith("7f6c9cb1")
    assert rows.image(make_row(instance_id="Project-MONAI__MONAI-1")) == (
        "xingyaoww/sweb.eval.x86_64.project-monai_s_monai-1:latest"
    )
    assert issue_columns.problem_statement(row) == "1 is wrong"
    assert issue_columns.hints_text(make_row(hints_text=None)) == ""
    assert issue_columns.gold_patch(row) == row["patch"]
    assert issue_columns.listed_tests(make_row(FAIL_TO_PASS='["a"]'))[0] == ["a"]
    assert rows.list_test_files(row) == ["tests/test_a.py", "tests/new.json"]
    assert rows.list_files_to_reset(row) == ["tests/test_a.py"]
    assert rows.list_files_to_run(row) == ["tests/test_a.py"]


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"instance_id": "a/b"}, "instance_id 'a/b' cannot be a file name"),
        ({"base_commit": "main"}, "base_commit 'main' is not 40 hex digits"),
        ({"patch": ""}, "patch is not a git diff"),
        ({"test_patch": None}, "test_patch is null, not text"),
        ({"FAIL_TO_PASS": "[", "PASS_TO_PASS": []}, "FAIL_TO_PASS is not a JSON list"),
        ({"FAIL_TO_PASS": [], "PASS_TO_PASS": []}, "list no tests"),
        ({"repo": "pydantic/pydantic"}, "pydantic/pydantic needs its own parser: not supported (supported: bokeh/"),
        ({"repo": "caddyserver/caddy"}, "caddyserver/caddy is not a repository of SWE-Gym"),
    ],
)
def test_bad_row_is_one_line(columns: dict[str, Any], word: str) -> None:
    row = make_row(**columns)
    reads = (
        rows.base_commit,
        issue_columns.gold_patch,
        issue_columns.hidden_patch,
        issue_columns.listed_tests,
        spec_of,
    )
    with pytest.raises(ConfigError) as error:
        _ = [read(row) for read in reads]
    assert word in error.value.reason
    assert str(row["instance_id"]) in error.value.reason
    assert "\n" not in error.value.reason


def test_commands_depend_on_version() -> None:
    old, new = (spec_of(make_row(repo="pandas-dev/pandas", version=version)) for version in ("2.1", "2.2"))
    assert old.install.endswith(new.install)
    assert "numpy<2" in old.install
    assert "numpy" not in new.install
    assert old.test_command == new.test_command == "pytest -rA --tb=long"
    script = eval_script(make_row(repo="conan-io/conan", version="2.3")).splitlines()
    assert script.index("export PYTHONPATH=${PYTHONPATH:-}:$(pwd)") < script.index("git status")


def test_repository_name_ignores_case() -> None:
    assert spec_of(make_row(repo="Project-MONAI/MONAI")).test_command == "pytest -rA"
    assert refusal_reason(make_row()) is None
    assert "mypy selects its tests by name" in str(refusal_reason(make_row(repo="python/mypy")))


@needs_data
def test_real_rows_have_every_column() -> None:
    real = read_rows()
    assert len(real) == 5
    for name, row in real.items():
        assert rows.COLUMNS.match(row)
        assert rows.image(row) == f"xingyaoww/sweb.eval.x86_64.{name.replace('__', '_s_')}:latest"
        assert refusal_reason(row) is None
        files = {test.partition("::")[0] for test in issue_columns.listed_tests(row)[0]}
        assert files <= set(rows.list_files_to_run(row))
