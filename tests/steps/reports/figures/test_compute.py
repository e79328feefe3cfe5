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


def test_rate_counts_all_units(summarised: Any) -> None:
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


def test_summary_groups_add_up(summarised: Any) -> None:
    summary = summarised(instances=200)
    for groups in (summary.repositories, summary.difficulties):
        assert sum(group.rate.total for group in groups) == 200
        assert sum(group.rate.resolved for group in groups) == summary.headline.resolved
    sizes = [group.rate.total for group in summary.repositories]
    assert sizes == sorted(sizes, reverse=True)
    assert [group.name for group in summary.difficulties][:2] == ["<15 min fix", "15 min - 1 hour"]


def test_headline_counts_all_attempts(summarised: Any) -> None:
    summary = summarised(instances=50, attempts=4, mix={"resolved": 1, "unresolved": 1})
    headline, pass_at_1 = summary.headline, summary.pass_at[0]
    assert (headline.total, headline.resolved) == (200, sum(attempt.rate.resolved for attempt in summary.attempts))
    assert headline.rate == pytest.approx(headline.resolved / 200)
    assert (headline.rate, headline.low, headline.high) == (pass_at_1.estimate, pass_at_1.low, pass_at_1.high)
    assert headline.rate != summary.attempts[0].rate.rate
    assert summary.word.startswith(f"resolved {headline.resolved} of 200 attempts")


def test_pass_at_k_uses_all_attempts(summarised: Any) -> None:
    summary = summarised(instances=50, attempts=4)
    assert summary.units == 200
    assert [item.attempt for item in summary.attempts] == [1, 2, 3, 4]
    assert [item.k for item in summary.pass_at] == [1, 2, 4]
    estimates = [item.estimate for item in summary.pass_at]
    assert estimates == sorted(estimates)
    assert summary.pass_at[2].instances < 50  # some attempt of some instances has no verdict


def test_single_attempt_has_no_pass_at_k(summarised: Any) -> None:
    assert summarised(instances=5).pass_at == []


def test_cost_includes_failed_tries(summarised: Any) -> None:
    summary = summarised(instances=100, mix={"failed": 1})
    assert summary.cost.usage == summary.cost.failed_tries
    assert summary.cost.usage.calls == 100 * 31
    assert summary.cost.usd_per_resolved is None
    assert summary.seconds["total"].median == pytest.approx(40 + 41 + 42)


def test_cost_without_prices_is_unknown(summarised: Any) -> None:
    cost = summarised(instances=10, priced=False, mix={"resolved": 1}).cost
    assert cost.usage.cost_usd is None
    assert cost.usd_per_resolved is None
    assert cost.tokens_per_resolved > 400_000


def test_sandboxes_cost_their_lifetime(summarised: Any) -> None:
    summary = summarised(instances=10, mix={"resolved": 1, "unresolved": 1, "failed": 1}, usd_per_hour=0.109)
    stages = ("solve.prepare", "solve.agent", "solve.patch", "grade.apply", "grade.tests", "grade.confirmation")
    seconds = sum(summary.seconds[stage].total for stage in stages if stage in summary.seconds)
    assert summary.cost.sandboxes_usd == pytest.approx(0.109 * seconds / 3600)
    assert f"sandboxes {money(summary.cost.sandboxes_usd)}" in " ".join(summary_lines(summary))


def test_free_sandboxes_have_no_cost(summarised: Any) -> None:
    summary = summarised(instances=5)
    assert summary.cost.sandboxes_usd is None
    assert "sandboxes" not in " ".join(summary_lines(summary))


def test_clean_run_has_no_doubts(summarised: Any) -> None:
    assert summarised(instances=20, mix={"resolved": 1, "unresolved": 1}, suspects=0).doubts == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mix": {"failed": 1}}, "3 units failed without a verdict:"),
        ({"mix": {"not_run": 1}}, "3 units not run: the run is not finished."),
        (
            {"mix": {"resolved": 1}, "suspects": 1.0},
            "3 verdicts are suspect: a confirmation, the log or files contradict them; 3 of them count",
        ),
        ({"mix": {"resolved": 1}, "agent": "idle"}, "3 untouched repositories resolved; none should be."),
        ({"spec": {"agent": {"name": "r2egym", "hints": True}}}, "shown the discussion of each issue"),
        ({"spec": {"grading": {"timeout_s": 60}}}, "Tests had a limit of 60 s; the official limit is 1,800 s."),
        ({"spec": {"grading": {"network": False}}}, "Tests had no network"),
        ({"instances": 20, "mix": {"failed": 1}}, "This run is invalid: 20 of 20 units (100 %) have no verdict"),
        ({"instances": 0}, "No units are planned"),
    ],
)
def test_doubts_cover_every_problem(summarised: Any, spec: dict[str, Any], message: str) -> None:
    doubts = summarised(**{"instances": 3, "suspects": 0.0} | spec).doubts
    assert any(message in doubt for doubt in doubts), doubts


@pytest.mark.parametrize(("agent", "kind"), [("gold", "reference"), ("idle", "control"), ("given", "given")])
def test_run_without_agent_has_its_kind(summarised: Any, agent: str, kind: str) -> None:
    assert summarised(instances=2, agent=agent).conditions.kind == kind


def test_summary_round_trips(summarised: Any) -> None:
    summary = summarised(instances=30, attempts=2, hostile=True)
    assert Summary.from_bytes(summary.to_bytes()) == summary


@pytest.mark.parametrize(("failed", "valid"), [(0, True), (4, True), (5, False), (40, False)])
def test_incomplete_run_is_invalid(failed: int, valid: bool, tmp_path: Path) -> None:
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


def test_units_without_steps_raise_doubt(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=5, agent="r2egym", mix={"unresolved": 1}, suspects=0).write(store)
    view = read_run(store, "synthetic")
    stops = [StopReason.TIMEOUT, StopReason.TIMEOUT, StopReason.FINISHED, StopReason.TIMEOUT]
    for unit, stop, turns in zip(view.units, stops, (0, 0, 0, 7), strict=False):
        assert unit.solve is not None
        unit.solve, unit.turns = unit.solve.model_copy(update={"stop_reason": stop}), turns
        unit.endpoint, unit.patch = "http://127.0.0.1/v1", None
    [text] = [doubt for doubt in summarise(view).doubts if "no step" in doubt]
    assert text.startswith(
        "In 3 units the agent made no step, so the trajectory is empty (out of time 2 and finished 1)"
    )
    assert "raise --agent-timeout" in text
    for unit in view.units:
        unit.endpoint = ""  # idle and others that ask no model
    assert not [doubt for doubt in summarise(view).doubts if "no step" in doubt]
