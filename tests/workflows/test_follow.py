"""A unit that is followed from another terminal: its turns as they come, and how it ended."""

from __future__ import annotations

from pathlib import Path

from steps.contracts.record import key
from steps.contracts.verdict import GradeRecord
from steps.store import open_store
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import QUICK, begin, ids, swe_argo, wait_for
from tests.workflows.waiting_model import waiting_model


def test_turns_are_printed_as_they_come_and_then_how_it_ended(tmp_path: Path) -> None:
    """The model's second answer waits until its first was printed."""
    with waiting_model("echo \x1b[2Jhi > new.txt") as model:
        runner = begin("run", *model.agent, "--store", str(tmp_path), "--run-id", "r", *ids(QUICK[0]))
        wait_for((tmp_path / "runs" / "r" / "plan.json").exists)
        follower = begin("show", "--follow", "r", QUICK[0], "--store", str(tmp_path))
        assert follower.stdout is not None
        lines: list[str] = []
        for line in follower.stdout:
            lines.append(line)
            if line.startswith("turn 1 "):
                break
        model.go_on.set()
        rest, _ = follower.communicate(timeout=300)
        printed, _ = runner.communicate(timeout=300)
    text = "".join(lines) + rest
    assert (follower.returncode, runner.returncode) == (0, 0), text + printed
    assert "\x1b" not in text
    places = [text.index(each) for each in ("-- agent at work", "turn 1 ", "turn 2 ", "stopped: finished, 2 turns")]
    assert places == sorted(places)
    assert text.count("turn 1 ") == 1


def test_one_that_nobody_works_on_is_told_with_the_way_on(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    plan = Synthetic(run_id="r", instances=1, mix={"resolved": 1}).write(store)
    name = plan.units[0].instance_id
    done = swe_argo("show", "--follow", "r", name, "--store", store.url)
    assert done.returncode == 0, done.stdout + done.stderr
    store.delete_many([key(GradeRecord, "r", name, 1)])
    done = swe_argo("show", "--follow", "r", name, "--store", store.url)
    assert done.returncode == 3
    assert (
        f"nobody on this machine works on it; where it runs on a cluster: swe-argo watch {plan.run_id}" in done.stdout
    )
    refused = swe_argo("show", "--follow", "r", "--store", store.url)
    assert (refused.returncode, refused.stderr.count("\n")) == (64, 1)
