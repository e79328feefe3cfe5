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


def test_parser_reads_json_calls() -> None:
    first = '<tool_call>\n{"name": "edit", "arguments": {"path": "</tool_call>"}}\n</tool_call>'
    text = f'Two.\n{first}\n<tool_call>\n{{"name": "b"}}\n</tool_call>'
    answer = parse_answer(text, "hermes", TOOLS, [])
    assert (answer.text, called(answer.calls)) == ("Two.", [("edit", {"path": "</tool_call>"}), ("b", {})])
    assert len({call["id"] for call in answer.calls}) == 2


def test_parser_types_tagged_calls() -> None:
    text = (
        "I edit.\n<tool_call>\n<function=edit>\n<parameter=path>\n1\n</parameter>\n<parameter=line>\n2\n</parameter>\n"
        "<parameter=body>\na\n\nb\n</parameter>\n</function>\n</tool_call>"
    )
    answer = parse_answer(text, "qwen3_coder", TOOLS, [])
    assert answer.text == "I edit."
    assert called(answer.calls) == [("edit", {"path": "1", "line": 2, "body": "a\n\nb"})]


@pytest.mark.parametrize(
    "text", ["<tool_call>\n{'name': 1}\n</tool_call>", "<tool_call>\n[1]\n</tool_call>", '<tool_call>{"arguments": {}}']
)
def test_parser_keeps_malformed_calls(text: str) -> None:
    answer = parse_answer(text, "hermes", TOOLS, [])
    assert (answer.text, answer.calls) == (text, [])


def test_parser_needs_tools_for_calls() -> None:
    text = '<tool_call>\n{"name": "edit"}\n</tool_call>'
    assert parse_answer(text, "hermes", None, []).text == text


@pytest.mark.parametrize(
    ("text", "reasoning", "expected"),
    [
        ("<think>\nhm\n</think>\n\nYes.", "hm", "Yes."),
        ("hm\n</think>\n\nYes.", "hm", "Yes."),
        ("<think>\nhm, and then", "hm, and then", ""),
        ("Yes.", "", "Yes."),
    ],
)
def test_parser_separates_reasoning(text: str, reasoning: str, expected: str) -> None:
    answer = parse_answer(text, "hermes", TOOLS, [])
    assert (answer.reasoning, answer.text) == (reasoning, expected)


def test_parser_cuts_at_first_stop() -> None:
    assert parse_answer("a HALT b STOP", None, None, ["STOP", "HALT"]).text == "a "


def test_tool_format_comes_from_template() -> None:
    assert tool_format_of("... <tool_call>\n<function=name> ...") == "qwen3_coder"
    assert tool_format_of("... <tool_call>{...}</tool_call>") == "hermes"
    assert tool_format_of("{{ messages }}") is None
