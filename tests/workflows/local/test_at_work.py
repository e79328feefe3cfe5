"""Units at work on this machine, seen by another process than the one that runs them."""

from __future__ import annotations

import json
from pathlib import Path

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.local.at_work import UnitAtWork, find_units_at_work
from tests.workflows.command import QUICK, begin, ids, wait_for
from tests.workflows.view.server import viewing
from tests.workflows.waiting_model import waiting_model


def test_unit_at_work_reports_progress(tmp_path: Path) -> None:
    def units_at_work() -> list[UnitAtWork]:
        return find_units_at_work(record_of(open_store(str(tmp_path)), RunFile, "r"))

    with waiting_model("echo hi > new.txt") as model:
        prices = ["--input-cost-per-token", "0.001", "--output-cost-per-token", "0.001", "--max-steps", "7"]
        runner = begin("run", *model.agent, *prices, "--store", str(tmp_path), "--run-id", "r", *ids(QUICK[0]))
        wait_for((tmp_path / "runs" / "r" / "plan.json").exists)
        wait_for(lambda: [candidate for candidate in units_at_work() if candidate.progress.turn == 1])
        (unit,) = units_at_work()
        growing = Trajectory.from_bytes(unit.trajectory.read_bytes())
        past = json.loads((tmp_path / "runs" / "r" / "run.json").read_text()) | {"created_at": "2020-01-01T00:00:00"}
        assert find_units_at_work(RunFile.model_validate(past)) == []
        with viewing(open_store(str(tmp_path))) as viewer:
            run, page = viewer.get("/runs/r").text, viewer.get(f"/runs/r/units/{QUICK[0]}/1").text
        model.go_on.set()
        printed, _ = runner.communicate(timeout=300)
    assert runner.returncode == 0, printed
    progress = unit.progress
    assert (progress.instance_id, progress.attempt, progress.step, progress.phase) == (QUICK[0], 1, "solve", "agent")
    assert (progress.turn, progress.most_turns) == (1, 7)
    assert progress.action == "execute_bash: echo hi > new.txt"
    assert progress.usage.cost_usd
    assert progress.usage == growing.extra.usage
    assert units_at_work() == []
    assert "execute_bash: echo hi &gt; new.txt" in run
    assert all("1 of 7" in candidate for candidate in (run, page))
    assert "<b>Running</b>" in page
    assert 'href="/runs/r/files/' not in page.partition("<footer>")[2]


def test_unit_at_work_is_read_from_store(tmp_path: Path) -> None:
    elsewhere, results = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    with waiting_model("echo hi > new.txt") as model:
        limit = ["--max-steps", "7", "--store", str(results), "--run-id", "r"]
        runner = begin("run", *model.agent, *limit, *ids(QUICK[0]), env={"TMPDIR": str(elsewhere)})
        wait_for(lambda: list(results.glob("runs/r/units/*/1/tries/*/answered_calls/*.jsonl")))
        assert find_units_at_work(record_of(open_store(str(results)), RunFile, "r")) == []
        with viewing(open_store(str(results))) as viewer:
            run, page = viewer.get("/runs/r").text, viewer.get(f"/runs/r/units/{QUICK[0]}/1").text
        model.go_on.set()
        printed, _ = runner.communicate(timeout=300)
        assert runner.returncode == 0, printed
        with viewing(open_store(str(results))) as viewer:
            final_page = viewer.get(f"/runs/r/units/{QUICK[0]}/1").text
    assert "execute_bash: echo hi &gt; new.txt" in run
    assert all("1 of 7" in text for text in (run, page))
    assert "<b>Running</b>" in page
    assert "echo hi &gt; new.txt" in page
    assert "<b>Running</b>" not in final_page
