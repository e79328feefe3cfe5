from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.reports.figures.caveats import agent_remarks, find_caveats
from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.figures.conditions import describe_conditions, run_conditions
from swe_argo.steps.reports.labels import ADVICE, STOPS
from swe_argo.steps.reports.messages.terminal import summary_lines
from swe_argo.steps.reports.stored_run import FailedTry, StoredRun
from tests.steps.reports.views import run_file, view

PROGRAM = {"recipe": {"name": "mine", "protocol": "anthropic", "command": ["mine"]}}


def run_of(agent: dict[str, Any], llm: dict[str, Any] | None = None, **fields: Any) -> StoredRun:
    spec = {"agent": {"name": "r2egym", "model": "openai/m-1"} | agent, "llm": llm or {}}
    return view(run_file(spec=spec, **fields), {"a": "resolved"})


def test_stop_reasons_have_meanings() -> None:
    assert set(STOPS) == set(StopReason)
    assert all(stop.name and stop.meaning for stop in STOPS.values())


@pytest.mark.parametrize(
    ("agent", "llm", "fields", "message"),
    [
        ({}, {}, {}, ["r2egym asked openai/m-1, temperature 0."]),
        (
            {},
            {"base_url": "https://u.example:8/v1#x", "temperature": 0.7, "seed": 3, "top_p": 0.9},
            {"fn_calling": True},
            [
                "r2egym asked openai/m-1 at https://u.example:8/v1 by function calling, "
                "temperature 0.7, top p 0.9, seed 3."
            ],
        ),
        (
            {},
            {"temperature": None},
            {"fn_calling": False},
            ["r2egym asked openai/m-1 in text, temperature the endpoint's own."],
        ),
        (
            {"name": "oneshot", "prompt_style": "style-2"},
            {},
            {},
            ["oneshot asked openai/m-1 in prompt style style-2, temperature 0."],
        ),
        (
            {"max_steps": 100, "max_token_limit": 32_768, "max_cost_usd": 1.5},
            {"max_output_tokens": 4096},
            {},
            [
                "r2egym asked openai/m-1, temperature 0.",
                "Limits other than the defaults: max_steps 100 (by default 40), max_token_limit 32,768 "
                "(by default 65,536), max_cost_usd 1.5, max_output_tokens 4,096.",
            ],
        ),
        ({"max_steps": 40, "max_steps_absolute": 50}, {}, {}, ["r2egym asked openai/m-1, temperature 0."]),
        (
            {"instruction_template": "mine.j2"},
            {},
            {},
            [
                "r2egym asked openai/m-1, temperature 0.",
                "The instruction came from the template mine.j2.",
            ],
        ),
        (
            {"name": "program", "helper_model": "openai/small"},
            {},
            {"program": PROGRAM, "speaks": ["chat"]},
            [
                "mine asked openai/m-1, temperature the endpoint's own.",
                "Its helper model was openai/small.",
                "Its calls in Anthropic messages were translated to chat completions.",
            ],
        ),
        (
            {"name": "program"},
            {},
            {"program": PROGRAM, "speaks": ["anthropic"]},
            ["mine asked openai/m-1, temperature the endpoint's own."],
        ),
        ({"name": "gold"}, {}, {}, []),
    ],
)
def test_conditions_describe_requests(
    agent: dict[str, Any], llm: dict[str, Any], fields: dict[str, Any], message: list[str]
) -> None:
    run = run_of(agent, llm, **fields)
    assert describe_conditions(run_conditions(run)) == message
    assert summarise(run).how == message


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ({"hints": True}, "The agent was shown the discussion of each issue (hints)."),
        (
            {"name": "oneshot", "prompt_style": "style-2-edits-only"},
            "The prompt showed which lines the reference patch touches (style-2-edits-only).",
        ),
        (
            {"iterative": True},
            "Iterative mode: up to 3 tries per unit while the critic (finish_with_patch) rejected the patch; "
            "the best patch counts.",
        ),
    ],
)
def test_caveats_accompany_score(agent: dict[str, Any], message: str) -> None:
    run = run_of(agent)
    assert message in find_caveats(run)
    assert message in agent_remarks(run)
    summary = summarise(run)
    assert message in summary.doubts
    assert "".join(message.split()) in "".join("".join(summary_lines(summary)).split())
    assert message not in find_caveats(run_of({}))


@pytest.mark.parametrize(
    ("agent", "kind", "is_counted"),
    [
        ({"name": "sweagent"}, "agent", True),
        ({"name": "gold"}, "reference", False),
        ({"name": "idle"}, "control", False),
        ({"name": "given", "predictions": "preds.jsonl"}, "given", False),
        ({"name": "given", "predictions": "run:earlier"}, "regraded", True),
        ({"name": "replay", "trajectories": "t"}, "replay", False),
    ],
)
def test_hints_count_only_for_agents(agent: dict[str, Any], kind: str, is_counted: bool) -> None:
    run = run_of(agent | {"hints": True})
    assert (run_conditions(run).kind, run_conditions(run).hints) == (kind, is_counted)
    assert any("hints" in doubt for doubt in find_caveats(run)) is is_counted


@pytest.mark.parametrize(
    ("select", "description"),
    [
        ({}, []),
        ({"k": 3, "start_idx": 2, "shuffle_seed": 0}, ["start_idx 2", "k 3", "shuffle_seed 0"]),
        ({"repos": ["psf/requests", "pallets/flask"]}, ["repos psf/requests and pallets/flask"]),
        ({"exclude": list("abcd")}, ["exclude 4"]),
    ],
)
def test_conditions_describe_selection(select: dict[str, Any], description: list[str]) -> None:
    assert run_conditions(view(run_file(spec={"select": select}), {"a": "resolved"})).selection == description


def test_planning_cost_counts_separately() -> None:
    planning = Usage(calls=1, requests=1, cost_usd=1.0)
    spec = {"agent": {"name": "r2egym"}, "max_cost_usd": 1.0}
    run = view(run_file(spec=spec, planning=planning), {"a": "not_run"})
    assert any("reached its --max-cost" in doubt for doubt in find_caveats(run))
    assert summarise(run).cost.planning == planning


def test_max_cost_caveat_names_remedy() -> None:
    spec = {"agent": {"name": "r2egym"}, "max_cost_usd": 1.0}
    run = view(run_file(spec=spec), {"a": "failed", "b": "not_run", "c": "not_run"})
    assert "2 units not run: the run is not finished." in find_caveats(run)
    failure = run.units[0].tries[0].failure
    run.units[0].tries = [FailedTry(failure, Usage(calls=9, requests=9, cost_usd=1.2))]
    assert (
        "2 units not started: the run reached its --max-cost of $1.00; start the same run again with a higher limit "
        "to complete it." in find_caveats(run)
    )
    assert summarise(run).conditions.max_cost_usd == 1.0


@pytest.mark.parametrize("kind", [FailureClass.MODEL, FailureClass.MODEL_ACCESS])
def test_model_failure_has_advice(kind: FailureClass) -> None:
    run = view(run_file(), {"a": "failed", "b": "resolved"})
    failure = run.units[0].tries[0].failure.model_copy(update={"failure_class": kind})
    run.units[0].tries = [FailedTry(failure, Usage())]
    caveats = find_caveats(run)
    assert caveats[1] == f"1 unit failed without a verdict: {kind.value} 1."
    assert caveats[2] == ADVICE[kind]


@pytest.mark.parametrize(
    ("outcomes", "agent", "warns"),
    [
        (["empty_patch", "empty_patch", "resolved"], "given", True),
        (["empty_patch", "resolved"], "given", True),
        (["empty_patch", "resolved", "unresolved"], "given", False),
        (["empty_patch", "no_prediction", "no_prediction"], "given", True),
        (["no_prediction"], "given", False),
        (["empty_patch"], "r2egym", False),
    ],
)
def test_caveats_warn_of_empty_patches(outcomes: list[str], agent: str, warns: bool) -> None:
    run = view(run_file(spec={"agent": {"name": agent}}), {str(n): outcome for n, outcome in enumerate(outcomes)})
    assert any("empty: check that their source" in caveat for caveat in find_caveats(run)) is warns
