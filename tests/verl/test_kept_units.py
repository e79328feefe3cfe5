"""A validation of verl's as a run of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.verl.conftest import plan_failing_rows
from tests.workflows.command import summary, swe_argo

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from tests.verl.loops import ScriptedServer, call, play  # noqa: E402
from tests.verl.test_tool_loop import GOLD, INSTANCE  # noqa: E402
from workflows.verl.rollout import LostRolloutError  # noqa: E402

if TYPE_CHECKING:
    from tests.verl.loops import Loops

RUN = "rows-val-000010"


async def validate(loops: Loops, store: str) -> None:
    """Two instances: one is solved, the other one's sandbox cannot be made."""
    solving = ScriptedServer(loops.tokenizer, play(call("bash", command="ls"), call("submit_solution", patch=GOLD)))
    await loops.serve(store, INSTANCE, solving, "val")
    orders = Path(store).with_name("orders")
    orders.write_text("solve 1")
    with pytest.raises(LostRolloutError):
        await loops.serve(store, "mini__slugkit-1", solving, "val")


def test_a_validation_is_a_run_that_is_reported(loops: Loops, isolation: None, tmp_path: Path) -> None:
    store = plan_failing_rows(tmp_path, retries=0)
    asyncio.run(validate(loops, store))
    unit = Path(store) / "runs" / RUN / "units" / INSTANCE / "1"
    files = {"trajectory.json", "patch.diff", "solve.json", "grade.json", "report.json", "test_output.txt"}
    assert files <= {file.name for file in unit.iterdir()}
    swe_argo("report", RUN, "--store", store)
    figures = summary(store, RUN)
    assert (figures.headline.resolved, figures.headline.total) == (1, 2)
    assert not figures.complete
    page = (Path(store) / "runs" / RUN / "report" / "report.html").read_text()
    assert "the node went away" in page


def test_training_rollouts_are_kept_only_where_that_is_said(loops: Loops, rows: str) -> None:
    loops.play(rows, INSTANCE, play())
    assert [folder.name for folder in (Path(rows) / "runs").iterdir()] == ["rows"]
