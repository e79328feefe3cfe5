from __future__ import annotations

import json

import pytest

from swe_argo.steps.reports.page.charts import columns
from swe_argo.steps.reports.unit.conversation import Conversation, UsageView, read_conversation
from swe_argo.steps.reports.unit.turns import (
    MAX_SHOWN_TURNS,
    MOST,
    PAGE_CHARACTERS,
    ShownTurn,
    describe_usage,
    show_turns,
    text_allowance,
)
from tests.steps.reports.conversations import trajectory


def talk(**spec: int) -> Conversation:
    return read_conversation(trajectory(("a__a-1", 1), **spec).to_bytes())  # type: ignore[arg-type]


def with_turn(**fields: object) -> ShownTurn:
    whole = json.loads(trajectory(("a__a-1", 1), turns=2).to_bytes())
    whole["steps"][2] |= fields
    return show_turns(read_conversation(json.dumps(whole).encode()), MOST, "")[2]


def observed(text: str) -> ShownTurn:
    return with_turn(observation={"results": [{"source_call_id": "call_0", "content": text}]})


def test_usual_trajectory_is_shown_whole() -> None:
    conversation = talk(turns=100)
    assert text_allowance([conversation]) == MOST
    turns = show_turns(conversation, MOST, "")
    assert len(turns) == 102
    assert not any(result.text and result.text.left_out for turn in turns for c in turn.calls for result in c.results)


def test_large_observations_share_budget() -> None:
    conversation = talk(turns=1000, observed=20_000)
    most = text_allowance([conversation])
    assert 500 < most < MOST
    turns = show_turns(conversation, most, "")
    texts = [result.text for turn in turns for c in turn.calls for result in c.results if result.text]
    assert sum(len(text.head) + len(text.tail) for text in texts) < PAGE_CHARACTERS
    assert all(text.left_out > 1000 for text in texts if len(text.head) + len(text.tail) > 1500)


def test_cut_text_keeps_both_ends() -> None:
    text = observed("first\n" + "x" * 50_000 + "\nlast").calls[0].results[0].text
    assert text is not None
    assert text.head.startswith("first\n")
    assert text.tail.endswith("\nlast")
    assert len(text.head) + len(text.tail) + text.left_out == 50_011


def test_middle_turns_are_omitted() -> None:
    turns = show_turns(talk(turns=3000, observed=10), 200, "")
    assert len(turns) == MAX_SHOWN_TURNS
    assert [turn.skipped for turn in turns if turn.skipped] == ["1,002 turns not shown"]
    assert turns[-1].number == 3000
    assert turns[-1].calls[0].anchor == "c3000"
    assert turns[2].calls[0].anchor == "c1"


def test_terminal_colours_are_removed() -> None:
    result = observed("\x1b[1;31mFAILED\x1b[0m \x1b[8mhidden\x1b[0m \x1b[2J\x07").calls[0].results[0]
    assert result.text is not None
    assert result.text.head == "FAILED hidden ␛[2J␇"
    assert result.first == "FAILED hidden ␛[2J␇"


def test_result_facts_describe_command() -> None:
    extra = {"exit_code": 2, "timed_out": True, "seconds": 90.0, "cut": True}
    turn = with_turn(observation={"results": [{"source_call_id": "call_0", "content": "a\nb\n", "extra": extra}]})
    result = turn.calls[0].results[0]
    assert result.facts == "exit code 2 · timed out · 1 m 30 s · 2 lines · cut for the agent, too"
    assert result.failed


def test_replay_shows_recorded_output() -> None:
    extra = {"recorded": "then\x00"}
    turn = with_turn(observation={"results": [{"source_call_id": "call_0", "content": "now", "extra": extra}]})
    recorded = turn.calls[0].results[0].recorded
    assert recorded is not None
    assert recorded.head == "then␀"


def test_edit_arguments_are_marked() -> None:
    arguments = {"command": "str_replace", "old_str": "a", "new_str": "b", "view_range": [1, 2]}
    turn = with_turn(tool_calls=[{"tool_call_id": "x", "function_name": "edit", "arguments": arguments}])
    kinds = {argument.name: (argument.kind, argument.short, argument.text.head) for argument in turn.calls[0].arguments}
    assert kinds == {
        "command": ("", True, "str_replace"),
        "old_str": ("del", False, "a"),
        "new_str": ("ins", False, "b"),
        "view_range": ("", True, "[1, 2]"),
    }


def test_describe_usage_is_one_line() -> None:
    spent = UsageView(
        prompt=4000, cached=3000, completion=90, reasoning=40, cost=0.0123, seconds=4.2, requests=3, finish="length"
    )
    assert (
        describe_usage(spent)
        == "4,000 in (3,000 cached) · 90 out (40 reasoning) · $0.012 · 4.2 s · 3 requests · length"
    )
    assert describe_usage(UsageView(finish="stop")) == ""


@pytest.mark.parametrize("rows", [[], [()], [(0.0, 0.0)]])
def test_columns_of_nothing_are_empty(rows: list[tuple[float, ...]]) -> None:
    paths, most = columns(rows)
    assert most == 0.0
    assert "".join(paths) == ""


def test_columns_are_stacked() -> None:
    paths, most = columns([(1.0, 1.0), (0.0, 4.0)])
    assert most == 4.0
    assert paths == ["M0.08 100.00V75.00h.84V100.00z", "M0.08 75.00V50.00h.84V75.00zM1.08 100.00V0.00h.84V100.00z"]
