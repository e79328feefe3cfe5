from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.serving.answers import parse_answer, tool_format_of

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "edit",
            "parameters": {"properties": {"path": {"type": "string"}, "line": {"type": "integer"}}},
        },
    }
]


def called(calls: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def test_calls_in_json_are_read() -> None:
    first = '<tool_call>\n{"name": "edit", "arguments": {"path": "</tool_call>"}}\n</tool_call>'
    text = f'Two.\n{first}\n<tool_call>\n{{"name": "b"}}\n</tool_call>'
    done = parse_answer(text, "hermes", TOOLS, [])
    assert (done.text, called(done.calls)) == ("Two.", [("edit", {"path": "</tool_call>"}), ("b", {})])
    assert len({call["id"] for call in done.calls}) == 2


def test_calls_in_tags_are_read_by_the_types_of_the_tool() -> None:
    text = (
        "I edit.\n<tool_call>\n<function=edit>\n<parameter=path>\n1\n</parameter>\n<parameter=line>\n2\n</parameter>\n"
        "<parameter=body>\na\n\nb\n</parameter>\n</function>\n</tool_call>"
    )
    done = parse_answer(text, "qwen3_coder", TOOLS, [])
    assert done.text == "I edit."
    assert called(done.calls) == [("edit", {"path": "1", "line": 2, "body": "a\n\nb"})]


@pytest.mark.parametrize(
    "text", ["<tool_call>\n{'name': 1}\n</tool_call>", "<tool_call>\n[1]\n</tool_call>", '<tool_call>{"arguments": {}}']
)
def test_what_cannot_be_read_stays_text(text: str) -> None:
    done = parse_answer(text, "hermes", TOOLS, [])
    assert (done.text, done.calls) == (text, [])


def test_without_tools_nothing_is_a_call() -> None:
    text = '<tool_call>\n{"name": "edit"}\n</tool_call>'
    assert parse_answer(text, "hermes", None, []).text == text


@pytest.mark.parametrize(
    ("text", "reasoning", "said"),
    [
        ("<think>\nhm\n</think>\n\nYes.", "hm", "Yes."),
        ("hm\n</think>\n\nYes.", "hm", "Yes."),
        ("<think>\nhm, and then", "hm, and then", ""),
        ("Yes.", "", "Yes."),
    ],
)
def test_thoughts_are_told_apart(text: str, reasoning: str, said: str) -> None:
    done = parse_answer(text, "hermes", TOOLS, [])
    assert (done.reasoning, done.text) == (reasoning, said)


def test_the_first_stop_ends_the_text() -> None:
    assert parse_answer("a HALT b STOP", None, None, ["STOP", "HALT"]).text == "a "


def test_the_form_of_calls_is_read_from_the_template() -> None:
    assert tool_format_of("... <tool_call>\n<function=name> ...") == "qwen3_coder"
    assert tool_format_of("... <tool_call>{...}</tool_call>") == "hermes"
    assert tool_format_of("{{ messages }}") is None
