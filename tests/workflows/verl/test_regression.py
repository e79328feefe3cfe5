"""Solutions whose reward is known, handed in without a model. That they get it: tests/verl/test_smoke.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steps.sandbox.local import bubblewrap
from tests.solutions import rows
from tests.verl.conftest import plan_rows
from workflows.verl import regression

INSTANCE = "mini__slugkit-2"


@pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
def test_a_patch_that_is_not_worth_what_it_should_be_is_told(tmp_path: Path) -> None:
    row = rows()[INSTANCE]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**row, "patch": row["test_patch"].replace("tests/", "more_tests/")}))
    store = plan_rows(tmp_path / "store", dataset=str(file), select={"instance_ids": [INSTANCE]})
    is_right, line = next(regression.try_known_solutions(store, None))
    assert not is_right
    assert line.startswith(f"{INSTANCE}: the verified patch: reward 0 (")
    assert "expected 1 (resolved), its sandbox is gone" in line


def test_a_store_without_an_export_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert regression.main([str(tmp_path)]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert "swe-argo export --format verl makes one" in line
