from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.reports.unit.conversation import read_conversation
from swe_argo.steps.reports.unit.turns import show_turns, text_allowance
from tests.steps.reports.conversations import total, trajectory


def test_conversation_reads_all_turns() -> None:
    whole = trajectory(("a__a-1", 1), turns=9, others=2)
    talk = read_conversation(whole.to_bytes())
    assert talk.stop == "finished"
    assert (talk.answers, talk.calls, len(talk.turns)) == (9, 9, 11)
    assert talk.endpoint == "https://llm.example/v1"
    assert [turn.message for turn in talk.turns] == [turn.message for turn in whole.steps]
    spent = [turn.usage for part in (talk, *talk.others) for turn in part.turns if turn.usage is not None]
    used = total(whole)
    assert sum(part.prompt for part in spent) == used.prompt_tokens
    assert sum(part.cached for part in spent) == used.cached_tokens
    assert sum(part.completion for part in spent) == used.completion_tokens
    assert sum(part.requests for part in spent) == used.requests
    assert [len(subagent.turns) for subagent in talk.others] == [11, 11]
    edit = talk.turns[3].calls[0]
    assert edit.name == "str_replace_editor"
    assert edit.arguments["old_str"] == "        return removed\n"
    assert (edit.results[0].exit_code, edit.results[0].seconds) == (0, 0.3)
    assert talk.turns[3].after_s == 6.0


def test_loose_observation_is_kept() -> None:
    whole = json.loads(trajectory(("a__a-1", 1), turns=2).to_bytes())
    whole["steps"][2]["observation"]["results"] += [
        {"content": "by the way"},
        {"source_call_id": "x", "content": "who?"},
    ]
    turn = read_conversation(json.dumps(whole).encode()).turns[2]
    assert [result.text for result in turn.other_results] == ["by the way", "who?"]
    assert len(turn.calls[0].results) == 1


def test_message_parts_are_read() -> None:
    whole = json.loads(trajectory(("a__a-1", 1), turns=1).to_bytes())
    whole["steps"][1]["message"] = [{"type": "text", "text": "look:"}, {"type": "image", "source": {}}]
    assert read_conversation(json.dumps(whole).encode()).turns[1].message == "look:\n[image]"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"steps": 1}', b"\xff", b"[" * 100_000])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_conversation(data)


FIELDS = sorted(
    {
        *Trajectory.model_fields,
        *("tool_calls", "observation", "results", "content", "metrics", "extra", "usage", "arguments", "timestamp"),
        *("prompt_tokens", "cost_usd", "exit_code", "seconds", "message", "source_call_id", "tool_call_id", "requests"),
        *("started_at", "stop_reason", "function_name", "source", "reasoning_content", "recorded", "cut"),
    }
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -1, "2026-11-20T22:00:00Z", "2026-11-20T22:00:00", "a\x00\x1b[31m", 1e308])
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=25,
)


@given(st.lists(ODD, max_size=4), st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=6))
def test_show_turns_accepts_any_steps(steps: list[Any], fields: dict[str, Any]) -> None:
    talk = read_conversation(json.dumps(fields | {"steps": steps}).encode())
    turns = show_turns(talk, text_allowance([talk]), "")
    assert len(turns) == len(steps)
    for turn in turns:
        turn.message.head.encode()


@given(
    st.dictionaries(
        st.sampled_from(["message", "tool_calls", "observation", "metrics", "timestamp", "reasoning_content"]), ODD
    )
)
def test_show_turns_accepts_odd_parts(odd: dict[str, Any]) -> None:
    whole = json.loads(trajectory(("a__a-1", 1), turns=2).to_bytes())
    whole["steps"][2] |= odd
    talk = read_conversation(json.dumps(whole).encode())
    assert len(show_turns(talk, text_allowance([talk]), "")) == 4
