"""A validation of verl as a run in the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.store import open_store
from tests.rollouts.stores import plan_failing_rows, plan_rows
from tests.workflows.command import summary, swe_argo

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from swe_argo.workflows.rollouts.rollout import LostRolloutError  # noqa: E402
from tests.verl.loops import Loops, ScriptedServer, call, play  # noqa: E402
from tests.verl.test_tool_loop import GOLD, INSTANCE  # noqa: E402

RUN = "grpo-val-000010"


async def validate(loops: Loops, store: str) -> None:
    """Roll out two instances: one is solved, the sandbox of the other cannot be created."""
    solving = ScriptedServer(loops.tokenizer, play(call("bash", command="ls"), call("submit_solution", patch=GOLD)))
    await loops.serve(store, INSTANCE, solving, "val")
    orders = Path(store).with_name("orders")
    orders.write_text("solve 1")
    with pytest.raises(LostRolloutError):
        await loops.serve(store, "mini__slugkit-1", solving, "val")


def test_validation_is_a_reported_run(loops: Loops, isolation: None, tmp_path: Path) -> None:
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


def test_repeat_replaces_the_whole_unit(loops: Loops, isolation: None, tmp_path: Path) -> None:
    store = plan_failing_rows(tmp_path, retries=0)
    solving = ScriptedServer(loops.tokenizer, play(call("submit_solution", patch=GOLD)))
    asyncio.run(loops.serve(store, INSTANCE, solving, "val"))
    (tmp_path / "orders").write_text("solve 1")
    with pytest.raises(LostRolloutError):
        asyncio.run(loops.serve(store, INSTANCE, solving, "val"))
    unit = Path(store) / "runs" / RUN / "units" / INSTANCE / "1"
    assert [file.name for file in unit.rglob("*") if file.is_file()] == ["failure.json"]


def test_unit_usage_matches_the_tokens(loops: Loops, isolation: None, tmp_path: Path) -> None:
    store = plan_rows(tmp_path / "store")
    server = ScriptedServer(loops.tokenizer, play(call("bash", command="ls"), call("submit_solution", patch=GOLD)))
    output = asyncio.run(loops.serve(store, INSTANCE, server, "val"))
    results_store = open_store(store)
    trajectory = Trajectory.from_bytes(results_store.get(key(Trajectory, RUN, INSTANCE, 1)))
    assert [turn.source for turn in trajectory.steps] == ["user", "agent", "agent"]
    first, second = (turn.metrics for turn in trajectory.steps[1:])
    assert first is not None
    assert second is not None
    assert first.prompt_tokens == len(output.prompt_ids)
    assert (first.completion_tokens or 0) + (second.completion_tokens or 0) == sum(output.response_mask)
    usage = SolveRecord.from_bytes(results_store.get(key(SolveRecord, RUN, INSTANCE, 1))).usage
    assert (usage.calls, usage.completion_tokens) == (2, sum(output.response_mask))
    assert trajectory.agent.model_name == loops.config.actor_rollout_ref.model.path


def test_limited_answer_is_in_trajectory(isolation: None, tmp_path: Path) -> None:
    loops = Loops(tmp_path / "loops", "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=1")
    store = plan_rows(tmp_path / "store")
    server = ScriptedServer(loops.tokenizer, play("Let me see."))
    asyncio.run(loops.serve(store, INSTANCE, server, "val"))
    trajectory = Trajectory.from_bytes(open_store(store).get(key(Trajectory, RUN, INSTANCE, 1)))
    assert trajectory.steps[-1].message == "Let me see."


def test_training_rollouts_are_not_stored(loops: Loops, rows: str) -> None:
    loops.play(rows, INSTANCE, play())
    assert [folder.name for folder in (Path(rows) / "runs").iterdir()] == ["rows"]
