"""Unknown fields of an answer: they return to their endpoint byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents.calls import FunctionCalling, Rules
from swe_argo.steps.agents.text_calls import TextCalls
from swe_argo.steps.models.protocols.chat import Assembly, merge_delta
from swe_argo.steps.models.reply import REFUSED_FIELDS, Message
from tests.model_server import Answer, Fault, Script, model_server
from tests.model_server.answers import error
from tests.steps.models.model_specs import BOTH, ISSUE, TOOLS, asking, client

Part = dict[str, Any]
FORMATS = pytest.mark.parametrize("calls", [True, False], ids=["calls", "text"])
SIGNED = {"thought_signature": "AbC=="}


def text(kind: str, index: int, words: str, **more: Any) -> Part:
    """Return one of OpenRouter's reasoning details."""
    return {"type": kind, "format": "anthropic-claude-v1", "index": index, "text": words, **more}


# fmt: off
FIELDS: dict[str, Part] = {
    "OpenRouter": {"reasoning": "Let me see.", "reasoning_details": [
        text("reasoning.text", 0, "Let me see.", signature="c2ln"),
        {"type": "reasoning.encrypted", "id": "rs_1", "index": 0, "data": "eHl6" * 9},
        {"type": "reasoning.encrypted", "id": "rs_2", "index": 1, "data": "YWJj"}]},
    "LiteLLM": {"thinking_blocks": [{"type": "thinking", "thinking": "hm, so", "signature": "sig=="},
                                    {"type": "redacted_thinking", "data": "opaque"},
                                    {"type": "thinking", "thinking": "and then", "signature": "sig2"}],
                "provider_specific_fields": {"citations": None, "score": 0.25, "inner": {"a": "long words", "n": 7}}},
    "Copilot": {"reasoning_opaque": "b3BhcXVl" * 20},
    "DeepSeek": {"reasoning_content": ""},
    "nulls": {"reasoning": None, "vendor": {"a": None, "b": [], "c": {}}, "flag": False},
}
# fmt: on
"""Provider -> unknown fields of its answers."""
CALL: Part = {
    "id": "c1",
    "type": "function",
    "function": {"name": "ls", "arguments": '{"path":  "a b"}', **SIGNED},
    "extra_content": {"google": SIGNED},
    "provider_specific_fields": SIGNED,
}


def in_pieces(value: Any, name: str = "") -> Iterator[Any]:
    """Yield the deltas of a value: three letters of a text, one key of an object; list elements keep their identity."""
    if isinstance(value, str) and value and name not in ("id", "type", "name", "format"):
        yield from (value[at : at + 3] for at in range(0, len(value), 3))
    elif isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from ({key: piece} for piece in in_pieces(inner, key))
    elif isinstance(value, list) and value:
        for element in value:
            same = {key: element[key] for key in element if key in ("type", "id", "format", "index")}
            yield from ([same | piece] for piece in in_pieces(element) if not piece.keys() <= same.keys())
    else:
        yield value


def answered(message: Message, request: Part) -> Fault:
    """Return an answer with this message, streamed on request; each chunk of a call has the call's name."""
    if not request.get("stream"):
        return Fault(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    fields = {name: value for name, value in message.items() if name != "tool_calls"}
    deltas = [delta for delta in in_pieces(fields) if delta != {"role": "assistant"}]
    for index, call in enumerate(message.get("tool_calls") or []):
        base = {"index": index, "id": call["id"], "type": "function"}
        for piece in in_pieces(call):
            function = {"name": call["function"]["name"], **piece.get("function", {})}
            deltas.append({"tool_calls": [piece | base | {"function": function}]})
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in [{"role": "assistant"}, *deltas]]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return Fault(200, lines + "data: [DONE]\n\n", {"Content-Type": "text/event-stream"})


def fields_of(message: Message) -> str:
    """Return the JSON of a message without role and text: calls in order, fields sorted."""
    unread = {name: value for name, value in message.items() if name not in ("role", "content")}
    calls = [dict(sorted(call.items())) for call in unread.pop("tool_calls", [])]
    return json.dumps([dict(sorted(unread.items())), calls])


def strict(message: Message) -> Script:
    """Answer with the message, and refuse a later request in which a byte of it has changed."""

    def respond(request: Part) -> Answer | Fault:
        back = [entry for entry in request["messages"] if entry["role"] == "assistant"]
        if not back:
            return answered(message, request)
        same = [fields_of(entry) for entry in back] == [fields_of(message)]
        return Answer("Done.") if same else error(400, f"messages.1: {fields_of(back[0])}")

    return respond


def ask_twice(url: str, stream: bool, calls: bool) -> Message:
    """Ask twice, with the answer and its result in between as a scaffold has them; return the message sent back."""
    written = (FunctionCalling if calls else TextCalls)(Rules(keeps_rest=False))
    with client(url, stream=stream, num_retries=0) as model:
        reply = model.ask(ISSUE, tools=TOOLS if calls else None)
        returned = written.to_message(reply)
        assert model.ask([*ISSUE, returned, *written.answer(reply, ["a.py"])]).text == "Done."
    return returned


@BOTH
@FORMATS
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
def test_unknown_fields_round_trip(fields: Part, calls: bool, stream: bool) -> None:
    tool_calls = {"tool_calls": [CALL, CALL | {"id": "c2", "extra_content": {"google": {}}}]} if calls else {}
    message: Message = {"role": "assistant", "content": "I look.", **fields, **tool_calls}
    with model_server(strict(message)) as server:
        assert ask_twice(server.url, stream, calls)["content"] == "I look."


@BOTH
@pytest.mark.parametrize("name", REFUSED_FIELDS)
def test_refused_fields_are_not_sent(name: str, stream: bool) -> None:
    message = {"role": "assistant", "content": "I look.", name: [{"type": "x"}], "tool_calls": [CALL | {name: 1}]}
    with asking(lambda request: answered(message, request), stream=stream) as (model, _):
        returned = model.ask(ISSUE).message
    assert name not in returned
    assert returned["tool_calls"] == [CALL]


REFUSALS: dict[str, Callable[[str], Fault]] = {
    "Cerebras": lambda name: error(400, f"messages.1.assistant.{name}: property 'messages.1.assistant.{name}' is "
                                        "unsupported", "wrong_api_format", "invalid_request_error", "validation_error"),
    "Groq": lambda name: error(400, "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' "
                                    f": property '{name}' is unsupported, did you mean 'role'?)]"),
    "Groq's models": lambda name: error(400, f"messages[1].{name}: {name} is not supported with this model"),
    "FastAPI": lambda name: Fault(422, {"detail": [{"type": "extra_forbidden", "msg": "Extra inputs are not permitted",
                                                    "loc": ["body", "messages", 1, "assistant", name]}]}),
}  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("name", ["reasoning_content", "vendor", "extra_content"])
def test_refused_field_is_dropped(name: str, refusal: Callable[[str], Fault]) -> None:
    message = {"role": "assistant", "content": "x", "reasoning_content": "so", "vendor": 1, "tool_calls": [CALL]}

    def respond(request: Part) -> Answer | Fault:
        back = [part for entry in request["messages"] for part in (entry, *entry.get("tool_calls", []))]
        if len(request["messages"]) == 1:
            return answered(message, request)
        return refusal(name) if any(name in part for part in back) else Answer("Done.")

    with model_server(respond) as server:
        returned = ask_twice(server.url, False, True)
        assert server.counts.requests == 3
        assert [field for field in server.calls[-1].body["messages"][1] if field in message] == [
            field for field in returned if field != name
        ]


PARTS: list[Part] = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm, so"}], "closed": True},
    {"type": "text", "text": "I look. <function=ls>\n</function> rest"},
]


@BOTH
@FORMATS
def test_content_parts_round_trip(calls: bool, stream: bool) -> None:
    """Mistral's reasoning models, and Claude at Databricks."""
    message = {"role": "assistant", "content": PARTS}
    with model_server(strict(message)) as server:
        content = ask_twice(server.url, stream, calls)["content"]
        with client(server.url, stream=stream) as model:
            reply = model.ask(ISSUE)
    assert (reply.text, reply.reasoning) == (PARTS[1]["text"], "hm, so")
    assert content == (PARTS if calls else [PARTS[0], {"type": "text", "text": PARTS[1]["text"].removesuffix(" rest")}])


def merged(*deltas: Part) -> Part:
    answer = Assembly()
    for delta in deltas:
        answer.add(json.dumps({"choices": [{"index": 0, "delta": delta}]}))
    message: Part = answer.build_body()["choices"][0]["message"]
    return message


def called(index: int | None = None, **fields: Any) -> Part:
    """Return a delta of one call; ``name`` and ``arguments`` are its function's."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {"tool_calls": [({} if index is None else {"index": index}) | fields | {"function": function}]}


CALLS: dict[str, tuple[list[Part], list[tuple[str, Any]]]] = {
    "name in every chunk": ([called(0, id="a", name="f", arguments='{"x"'), called(0, name="f", arguments=": 1}")],
                            [("f", '{"x": 1}')]),
    "empty name behind it": ([called(0, id="a", name="f"), called(0, id="", name="", arguments="{}")], [("f", "{}")]),
    "id in every chunk": ([called(0, id="a", name="f", arguments="{"), called(0, id="b", name=None, arguments="}")],
                          [("f", "{}")]),
    "every call is number 0": ([called(0, id="a", name="f", arguments="{}"), called(0, id="b", name="f", arguments="{"),
                                called(0, arguments="}")], [("f", "{}"), ("f", "{}")]),
    "no numbers": ([called(id="a", name="f", arguments="{"), called(arguments="}"),
                    called(id="b", name="g", arguments="{}")], [("f", "{}"), ("g", "{}")]),
    "in turns": ([called(0, id="a", name="f"), called(1, id="b", name="g"), called(0, arguments="{}"),
                  called(1, arguments='{"y": 2}')], [("f", "{}"), ("g", '{"y": 2}')]),
    "an object": ([called(0, id="a", name="f", arguments=""), called(0, arguments={"x": "y"})], [("f", {"x": "y"})]),
    "an object in every chunk": ([called(0, id="a", name="f", arguments={"x": "y"})] * 2, [("f", {"x": "y"})]),
    "an object, then nothing": ([called(0, id="a", name="f", arguments={"x": 1}), called(0, arguments="")],
                                [("f", {"x": 1})]),
}  # fmt: skip


@pytest.mark.parametrize(("deltas", "calls"), CALLS.values(), ids=CALLS.keys())
def test_streamed_calls_are_assembled(deltas: list[Part], calls: list[tuple[str, Any]]) -> None:
    functions = [call["function"] for call in merged(*deltas)["tool_calls"]]
    assert [(function["name"], function["arguments"]) for function in functions] == calls


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(["content", "a", "id", "index", "name", "type"]), json_values, max_size=4)


@settings(deadline=None)
@given(st.lists(messages, max_size=4))
def test_merge_delta_accepts_any_json(deltas: list[Part]) -> None:
    merged_delta: Part = {}
    for delta in deltas:
        before = json.dumps([merged_delta, delta])
        after = merge_delta(merged_delta, delta)
        assert json.dumps([merged_delta, delta]) == before, "what was given is not changed"
        assert after.keys() == merged_delta.keys() | delta.keys()
        merged_delta = after
