from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.messages.terminal import summary_lines
from swe_argo.steps.reports.page.report_page import render_page
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.reports.text.formatting import money
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic


@pytest.fixture
def summarised(tmp_path: Path) -> Any:
    def make(**spec: Any) -> Summary:
        store = open_store(str(tmp_path), create=True)
        Synthetic(**spec).write(store)
        return summarise(read_run(store, "synthetic"))

    return make


def test_the_denominator_stays_whole(summarised: Any) -> None:
    summary = summarised(instances=200)
    rate = summary.headline
    assert rate.total == 200
    assert rate.graded < 200
    assert rate.rate == rate.resolved / 200
    assert rate.low < rate.rate < rate.high
    assert sum(summary.outcomes.values()) == summary.units == 200
    assert sum(summary.failures.values()) == summary.outcomes["failed"] > 0
    assert len(summary.without_verdict) == 200 - rate.graded
    assert not summary.complete


def test_parts_add_up_to_the_whole(summarised: Any) -> None:
    summary = summarised(instances=200)
    for groups in (summary.repositories, summary.difficulties):
        assert sum(group.rate.total for group in groups) == 200
        assert sum(group.rate.resolved for group in groups) == summary.headline.resolved
    sizes = [group.rate.total for group in summary.repositories]
    assert sizes == sorted(sizes, reverse=True)
    assert [group.name for group in summary.difficulties][:2] == ["<15 min fix", "15 min - 1 hour"]


def test_headline_is_pass_at_1_over_all_attempts(summarised: Any) -> None:
    summary = summarised(instances=50, attempts=4, mix={"resolved": 1, "unresolved": 1})
    headline, pass_at_1 = summary.headline, summary.pass_at[0]
    assert (headline.total, headline.resolved) == (200, sum(one.rate.resolved for one in summary.attempts))
    assert headline.rate == pytest.approx(headline.resolved / 200)
    assert (headline.rate, headline.low, headline.high) == (pass_at_1.estimate, pass_at_1.low, pass_at_1.high)
    assert headline.rate != summary.attempts[0].rate.rate
    assert summary.word.startswith(f"resolved {headline.resolved} of 200 attempts")


def test_pass_at_k_uses_all_attempts(summarised: Any) -> None:
    summary = summarised(instances=50, attempts=4)
    assert summary.units == 200
    assert [one.attempt for one in summary.attempts] == [1, 2, 3, 4]
    assert [one.k for one in summary.pass_at] == [1, 2, 4]
    estimates = [one.estimate for one in summary.pass_at]
    assert estimates == sorted(estimates)
    assert summary.pass_at[2].instances < 50  # some attempt of some instances has no verdict


def test_one_attempt_has_no_pass_at_k(summarised: Any) -> None:
    assert summarised(instances=5).pass_at == []


def test_everything_wasted_is_in_the_cost(summarised: Any) -> None:
    summary = summarised(instances=100, mix={"failed": 1})
    assert summary.cost.usage == summary.cost.failed_tries
    assert summary.cost.usage.calls == 100 * 31
    assert summary.cost.usd_per_resolved is None
    assert summary.seconds["total"].median == pytest.approx(40 + 41 + 42)


def test_a_model_without_a_price_costs_what_nobody_knows(summarised: Any) -> None:
    cost = summarised(instances=10, priced=False, mix={"resolved": 1}).cost
    assert cost.usage.cost_usd is None
    assert cost.usd_per_resolved is None
    assert cost.tokens_per_resolved > 400_000


def test_sandboxes_that_are_paid_for_cost_their_price_for_as_long_as_they_were_there(summarised: Any) -> None:
    summary = summarised(instances=10, mix={"resolved": 1, "unresolved": 1, "failed": 1}, usd_per_hour=0.109)
    stages = ("solve.prepare", "solve.agent", "solve.patch", "grade.apply", "grade.tests", "grade.confirmation")
    seconds = sum(summary.seconds[stage].total for stage in stages if stage in summary.seconds)
    assert summary.cost.sandboxes_usd == pytest.approx(0.109 * seconds / 3600)
    assert f"sandboxes {money(summary.cost.sandboxes_usd)}" in " ".join(summary_lines(summary))


def test_sandboxes_that_nobody_is_paid_for_have_no_cost(summarised: Any) -> None:
    summary = summarised(instances=5)
    assert summary.cost.sandboxes_usd is None
    assert "sandboxes" not in " ".join(summary_lines(summary))


def test_nothing_to_say_against_it_is_an_empty_list(summarised: Any) -> None:
    assert summarised(instances=20, mix={"resolved": 1, "unresolved": 1}, suspects=0).doubts == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mix": {"failed": 1}}, "3 units failed without a verdict:"),
        ({"mix": {"not_run": 1}}, "3 units not run: the run is not finished."),
        (
            {"mix": {"resolved": 1}, "suspects": 1.0},
            "3 verdicts are suspect: a confirmation, the log or files contradict them; 3 of them count",
        ),
        ({"mix": {"resolved": 1}, "agent": "idle"}, "3 untouched repositories resolved: none should."),
        ({"spec": {"agent": {"name": "r2egym", "hints": True}}}, "shown the discussion of each issue"),
        ({"spec": {"grading": {"timeout_s": 60}}}, "Tests were given 60 s; the official limit is 1,800 s."),
        ({"spec": {"grading": {"network": False}}}, "Tests had no network"),
        ({"instances": 20, "mix": {"failed": 1}}, "This run is invalid: 20 of 20 units (100 %) without a verdict"),
        ({"instances": 0}, "Nothing was planned"),
    ],
)
def test_every_doubt_is_said(summarised: Any, spec: dict[str, Any], said: str) -> None:
    doubts = summarised(**{"instances": 3, "suspects": 0.0} | spec).doubts
    assert any(said in doubt for doubt in doubts), doubts


@pytest.mark.parametrize(("agent", "kind"), [("gold", "reference"), ("idle", "control"), ("given", "given")])
def test_a_run_that_measures_no_agent_says_so(summarised: Any, agent: str, kind: str) -> None:
    assert summarised(instances=2, agent=agent).conditions.kind == kind


def test_the_figures_survive_their_file(summarised: Any) -> None:
    summary = summarised(instances=30, attempts=2, hostile=True)
    assert Summary.from_bytes(summary.to_bytes()) == summary


@pytest.mark.parametrize(("failed", "valid"), [(0, True), (4, True), (5, False), (40, False)])
def test_a_run_with_too_many_units_without_a_verdict_is_called_invalid(
    failed: int, valid: bool, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=40, mix={"unresolved": 1}, suspects=0).write(store)
    view = read_run(store, "synthetic")
    for unit in view.units[:failed]:
        unit.grade = None
    summary = summarise(view)
    assert summary.valid is valid
    assert summary.doubts[:1] == ([f"{failed} units not run: the run is not finished."] if failed else [])
    top = "\n".join(summary_lines(summary))
    assert ("Stopped after" in top) is not valid
    assert ("Not a valid score" in render_page(view, summary).decode()) is not valid


def test_units_without_a_step_are_told_with_the_way_out_of_most(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=5, agent="r2egym", mix={"unresolved": 1}, suspects=0).write(store)
    view = read_run(store, "synthetic")
    stops = [StopReason.TIMEOUT, StopReason.TIMEOUT, StopReason.FINISHED, StopReason.TIMEOUT]
    for unit, stop, turns in zip(view.units, stops, (0, 0, 0, 7), strict=False):
        assert unit.solve is not None
        unit.solve, unit.turns = unit.solve.model_copy(update={"stop_reason": stop}), turns
        unit.endpoint, unit.patch = "http://127.0.0.1/v1", None
    [told] = [doubt for doubt in summarise(view).doubts if "no step" in doubt]
    assert told.startswith("In 3 units the trajectory is empty, the agent made no step (out of time 2 and finished 1)")
    assert "raise --agent-timeout" in told
    for unit in view.units:
        unit.endpoint = ""  # idle and others that ask no model
    assert not [doubt for doubt in summarise(view).doubts if "no step" in doubt]
