"""Solutions whose reward is known, handed in without a model. That they get it: tests/verl/test_smoke.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.workflows.rollouts import regression
from swe_argo.workflows.rollouts.kept_runs import name_of_kept_run
from swe_argo.workflows.rollouts.task import find_exported_run, read_task
from tests.rollouts.stores import plan_rows
from tests.solutions import rows

INSTANCE = "mini__slugkit-2"


@pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
def test_a_patch_that_is_not_worth_what_it_should_be_is_told(tmp_path: Path) -> None:
    row = rows()[INSTANCE]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**row, "patch": row["test_patch"].replace("tests/", "more_tests/")}))
    store = plan_rows(tmp_path / "store", dataset=str(file), select={"instance_ids": [INSTANCE]})
    plan_rows(tmp_path / "store", run_id="grpo-val-000000", select={"instance_ids": ["mini__slugkit-1"]})
    is_right, line = next(regression.try_known_solutions(store, None))
    assert not is_right
    assert line.startswith(f"{INSTANCE}: the verified patch: reward 0 (")
    assert "expected 1 (resolved), its sandbox is gone" in line


def test_the_exported_run_is_found_beside_what_validations_kept(tmp_path: Path) -> None:
    store = plan_rows(tmp_path / "store")
    for step in (0, 5):
        plan_rows(tmp_path / "store", run_id=name_of_kept_run("grpo", "val", step))
    plan_rows(tmp_path / "store", run_id=name_of_kept_run("grpo", "train", 1_000_000))
    assert read_task(store, None, INSTANCE).run.run_id == "rows"
    plan_rows(tmp_path / "store", run_id="others")
    with pytest.raises(ConfigError, match="It has others, rows"):
        find_exported_run(store)


def test_a_store_without_an_export_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert regression.main([str(tmp_path)]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert "swe-argo export --format verl makes one" in line
