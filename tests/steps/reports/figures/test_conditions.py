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


def asked(agent: dict[str, Any], llm: dict[str, Any] | None = None, **fields: Any) -> StoredRun:
    spec = {"agent": {"name": "r2egym", "model": "openai/m-1"} | agent, "llm": llm or {}}
    return view(run_file(spec=spec, **fields), {"a": "resolved"})


def test_every_reason_to_stop_has_a_name_and_a_meaning() -> None:
    assert set(STOPS) == set(StopReason)
    assert all(stop.name and stop.meaning for stop in STOPS.values())


@pytest.mark.parametrize(
    ("agent", "llm", "fields", "said"),
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
                "Instructed by the template mine.j2, not the agent's own.",
            ],
        ),
        (
            {"name": "program", "helper_model": "openai/small"},
            {},
            {"program": PROGRAM, "speaks": ["chat"]},
            [
                "mine asked openai/m-1, temperature the endpoint's own.",
                "Its helpers asked openai/small.",
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
def test_how_a_model_was_asked_is_said_in_words(
    agent: dict[str, Any], llm: dict[str, Any], fields: dict[str, Any], said: list[str]
) -> None:
    made = asked(agent, llm, **fields)
    assert describe_conditions(run_conditions(made)) == said
    assert summarise(made).how == said


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"hints": True}, "The agent was shown the discussion of each issue (hints)."),
        (
            {"name": "oneshot", "prompt_style": "style-2-edits-only"},
            "The prompt showed which lines the reference patch touches (style-2-edits-only).",
        ),
        (
            {"iterative": True},
            "Iterative: up to 3 tries a unit while the critic (finish_with_patch) refused; the best patch counts.",
        ),
    ],
)
def test_what_makes_a_score_another_score_stands_wherever_the_score_does(agent: dict[str, Any], said: str) -> None:
    made = asked(agent)
    assert said in find_caveats(made)
    assert said in agent_remarks(made)
    summary = summarise(made)
    assert said in summary.doubts
    assert "".join(said.split()) in "".join("".join(summary_lines(summary)).split())
    assert said not in find_caveats(asked({}))


@pytest.mark.parametrize(
    ("agent", "kind", "shown"),
    [
        ({"name": "sweagent"}, "agent", True),
        ({"name": "gold"}, "reference", False),
        ({"name": "idle"}, "control", False),
        ({"name": "given", "predictions": "preds.jsonl"}, "given", False),
        ({"name": "given", "predictions": "run:earlier"}, "regraded", True),
        ({"name": "replay", "trajectories": "t"}, "replay", False),
    ],
)
def test_hints_count_only_where_an_agent_saw_them(agent: dict[str, Any], kind: str, shown: bool) -> None:
    made = asked(agent | {"hints": True})
    assert (run_conditions(made).kind, run_conditions(made).hints) == (kind, shown)
    assert any("hints" in doubt for doubt in find_caveats(made)) is shown


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ({}, []),
        ({"k": 3, "start_idx": 2, "shuffle_seed": 0}, ["start_idx 2", "k 3", "shuffle_seed 0"]),
        ({"repos": ["psf/requests", "pallets/flask"]}, ["repos psf/requests and pallets/flask"]),
        ({"exclude": list("abcd")}, ["exclude 4"]),
    ],
)
def test_what_the_instances_were_chosen_by_is_said(select: dict[str, Any], said: list[str]) -> None:
    assert run_conditions(view(run_file(spec={"select": select}), {"a": "resolved"})).selection == said


def test_what_planning_took_counts_for_the_limit_and_is_told_apart() -> None:
    planning = Usage(calls=1, requests=1, cost_usd=1.0)
    spec = {"agent": {"name": "r2egym"}, "max_cost_usd": 1.0}
    made = view(run_file(spec=spec, planning=planning), {"a": "not_run"})
    assert any("reached its --max-cost" in doubt for doubt in find_caveats(made))
    assert summarise(made).cost.planning == planning


def test_a_run_out_of_money_says_what_was_not_begun_and_how_to_go_on() -> None:
    spec = {"agent": {"name": "r2egym"}, "max_cost_usd": 1.0}
    made = view(run_file(spec=spec), {"a": "failed", "b": "not_run", "c": "not_run"})
    assert "2 units not run: the run is not finished." in find_caveats(made)
    failure = made.units[0].tries[0].failure
    made.units[0].tries = [FailedTry(failure, Usage(calls=9, requests=9, cost_usd=1.2))]
    assert (
        "2 units not begun: the run reached its --max-cost of $1.00; the same run with a larger one does the rest."
        in find_caveats(made)
    )
    assert summarise(made).conditions.max_cost_usd == 1.0


@pytest.mark.parametrize("kind", [FailureClass.MODEL, FailureClass.MODEL_ACCESS])
def test_a_model_that_failed_says_what_to_do(kind: FailureClass) -> None:
    made = view(run_file(), {"a": "failed", "b": "resolved"})
    failure = made.units[0].tries[0].failure.model_copy(update={"failure_class": kind})
    made.units[0].tries = [FailedTry(failure, Usage())]
    said = find_caveats(made)
    assert said[1] == f"1 unit failed without a verdict: {kind.value} 1."
    assert said[2] == ADVICE[kind]


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
def test_caveats_warn_when_half_of_given_patches_are_empty(outcomes: list[str], agent: str, warns: bool) -> None:
    made = view(run_file(spec={"agent": {"name": agent}}), {str(n): outcome for n, outcome in enumerate(outcomes)})
    assert any("empty: check that their source" in caveat for caveat in find_caveats(made)) is warns
