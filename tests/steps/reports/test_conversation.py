"""Trajectories as pages of units show them: read, cut, and described."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.contracts.trajectory import Metrics, MetricsExtra
from swe_argo.steps.reports.unit.conversation import Conversation, read_conversation
from swe_argo.steps.reports.unit.turns import (
    MAX_DIFF_LINES,
    MAX_SHOWN_TURNS,
    MOST,
    PAGE_CHARACTERS,
    ShownTurn,
    describe_usage,
    diff_of_edit,
    first_edit,
    show_turns,
    text_allowance,
)
from tests.steps.reports.trajectories import trajectory


def conversation_of(**spec: Any) -> Conversation:
    return read_conversation(trajectory(("a__a-1", 1), **spec).to_bytes())


def read_changed(step: int = 2, **fields: Any) -> Conversation:
    """Return a conversation of two answers, one of its steps changed."""
    whole = json.loads(trajectory(("a__a-1", 1), turns=2).to_bytes())
    whole["steps"][step] |= fields
    return read_conversation(json.dumps(whole).encode())


def shown_turn(**fields: Any) -> ShownTurn:
    return show_turns(read_changed(**fields), MOST, "")[2]


def observed(text: str, **extra: Any) -> ShownTurn:
    return shown_turn(observation={"results": [{"source_call_id": "call_0", "content": text, "extra": extra}]})


def test_conversation_reads_all_turns() -> None:
    whole = trajectory(("a__a-1", 1), turns=9, others=2)
    read = read_conversation(whole.to_bytes())
    assert (read.stop, read.answers, read.calls, len(read.turns)) == ("finished", 9, 9, 11)
    assert (read.endpoint, read.agent) == ("https://llm.example/v1", ("r2egym", "lab/model-1", "function calling"))
    assert read.turns == tuple(whole.steps)
    assert [len(subagent.turns) for subagent in read.others] == [11, 11]
    edit = show_turns(read, None)[3]
    assert (edit.at, edit.calls[0].name) == ("+6.0 s", "str_replace_editor")
    assert edit.usage.startswith("3,700 in (3,000 cached) · ")


def test_show_turns_keeps_loose_observation() -> None:
    results = [{"source_call_id": "call_0", "content": "x"}, {"content": "by the way"}]
    turn = shown_turn(observation={"results": [*results, {"source_call_id": "y", "content": "who?"}]})
    assert [result.first for result in turn.other_results] == ["by the way", "who?"]
    assert len(turn.calls[0].results) == 1


@pytest.mark.parametrize("time", [None, "yesterday", "2026-11-20T22:00:00", "2026-11-19T22:00:00Z"])
def test_show_turns_accepts_odd_times(time: str | None) -> None:
    assert shown_turn(timestamp=time).at == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"steps": 1}', b"\xff", b"[" * 100_000])
def test_conversation_refuses_other_files(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_conversation(data)


def test_show_turns_keeps_usual_texts_whole() -> None:
    conversation = conversation_of(turns=100)
    assert text_allowance([conversation]) == MOST
    turns = show_turns(conversation, MOST, "")
    assert len(turns) == 102
    assert not any(result.text and result.text.left_out for turn in turns for c in turn.calls for result in c.results)


def test_show_turns_shares_budget() -> None:
    conversation = conversation_of(turns=1000, observed=20_000)
    most = text_allowance([conversation])
    assert 500 < most < MOST
    turns = show_turns(conversation, most, "")
    texts = [result.text for turn in turns for c in turn.calls for result in c.results if result.text]
    assert sum(len(text.head) + len(text.tail) for text in texts) < PAGE_CHARACTERS
    assert all(text.left_out > 1000 for text in texts if len(text.head) + len(text.tail) > 1500)


def test_cut_text_keeps_both_ends() -> None:
    text = observed("first\n" + "x" * 50_000 + "\nlast").calls[0].results[0].text
    assert text is not None
    assert (text.head[:6], text.tail[-5:]) == ("first\n", "\nlast")
    assert len(text.head) + len(text.tail) + text.left_out == 50_011


def test_show_turns_omits_middle() -> None:
    turns = show_turns(conversation_of(turns=3000, observed=10), 200, "")
    assert len(turns) == MAX_SHOWN_TURNS
    assert [turn.skipped for turn in turns if turn.skipped] == ["1,002 turns not shown"]
    assert (turns[-1].number, turns[-1].calls[0].anchor, turns[2].calls[0].anchor) == (3000, "c3000", "c1")


def test_observation_has_visible_text_and_facts() -> None:
    facts = {"exit_code": 2, "timed_out": True, "seconds": 90.0, "cut": True, "recorded": "then\x00"}
    turn = observed("\x1b[1;31mFAILED\x1b[0m \x1b[8mhidden\x1b[0m \x1b[2J\x07\nb\n", **facts)
    result = turn.calls[0].results[0]
    assert result.text
    assert result.text.head.splitlines()[0] == result.first == "FAILED hidden ␛[2J␇"
    assert result.facts == "exit code 2 · timed out · 1 m 30 s · 2 lines · cut for the agent, too"
    assert result.failed
    assert result.recorded is not None
    assert result.recorded.head == "then␀"


def test_edit_arguments_are_marked() -> None:
    arguments = {"command": "str_replace", "old_str": "a", "new_str": "b", "view_range": [1, 2]}
    turn = shown_turn(tool_calls=[{"tool_call_id": "x", "function_name": "edit", "arguments": arguments}])
    assert {part.name: (part.kind, part.short, part.text.head) for part in turn.calls[0].arguments} == {
        "command": ("", True, "str_replace"),
        "old_str": ("del", False, "a"),
        "new_str": ("ins", False, "b"),
        "view_range": ("", True, "[1, 2]"),
    }


def test_describe_usage_is_one_line() -> None:
    extra = MetricsExtra(reasoning_tokens=40, seconds=4.2, requests=3, finish_reason="length")
    metrics = Metrics(prompt_tokens=4000, cached_tokens=3000, completion_tokens=90, cost_usd=0.0123, extra=extra)
    text = "4,000 in (3,000 cached) · 90 out (40 reasoning) · $0.012 · 4.2 s · 3 requests · length"
    assert describe_usage(metrics) == text
    assert describe_usage(Metrics(extra=MetricsExtra(finish_reason="stop"))) == describe_usage(Metrics()) == ""


def test_edit_diff_has_separate_fragments() -> None:
    old = "\n".join(f"line {n}" for n in range(30)) + "\n"
    new = old.replace("line 3\n", "line three\n").replace("line 25\n", "")
    assert diff_of_edit({"old_str": old, "new_str": new}, None) == [
        *(" line 0", " line 1", " line 2", "-line 3", "+line three", " line 4", " line 5", " line 6"),
        "…",
        *(" line 22", " line 23", " line 24", "-line 25", " line 26", " line 27", " line 28"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *((None, "x"), ("x", None), ("", "x"), (5, "x"), ("same", "same"), ("x" * 3000, "y" * 3000)),
        ("x\n" * (MAX_DIFF_LINES + 1), "y"),
    ],
)
def test_unsuitable_edit_has_no_diff(old: object, new: object) -> None:
    arguments = {name: value for name, value in (("old_str", old), ("new_str", new)) if value is not None}
    assert diff_of_edit(arguments, 5000) == []


@pytest.mark.parametrize(
    ("arguments", "is_edit"),
    [
        ({"command": "create", "file_text": "x"}, True),
        ({"command": "sed -i s/a/b/ x.py"}, True),
        ({"cmd": "cat > x.py <<'EOF'\nprint()\nEOF"}, True),
        ({"command": "git apply fix.patch"}, True),
        ({"command": "python -c 'import pathlib; pathlib.Path().write_text(str())'"}, True),
        ({"command": "sed -n 1,20p x.py"}, False),
        ({"command": "cat x.py && grep -rn patch ."}, False),
        ({"command": 7}, False),
    ],
)
def test_first_edit_is_recognised(arguments: dict[str, Any], is_edit: bool) -> None:
    calls = [{"tool_call_id": "1", "function_name": "f", "arguments": call} for call in ({"command": "ls"}, arguments)]
    assert (first_edit(read_changed(tool_calls=calls)) == "c2") is is_edit
