"""Requests and answers of the protocols as chat completions have them, and back: what must not be lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.contracts.wire_protocol import WireProtocol
from steps.models.forwarding import IMAGE, open_forwarder
from steps.models.protocols.table import WIRES
from steps.models.protocols.wire import Wire
from tests.steps.models.model_specs import spec

RESPONSES, ANTHROPIC = WIRES[WireProtocol.RESPONSES], WIRES[WireProtocol.ANTHROPIC]
TRANSLATED = pytest.mark.parametrize("wire", [RESPONSES, ANTHROPIC], ids=lambda wire: wire.protocol.value)
IMAGE_URL = "data:image/png;base64,aaaa"
IMAGE_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
PDF_URL = "data:application/pdf;base64,aaaa"
PDF_BLOCK = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aaaa"}}
SHOWN = {
    "an image": (IMAGE_BLOCK, {"type": "input_image", "image_url": IMAGE_URL}),
    "a file": (PDF_BLOCK, {"type": "input_file", "file_data": PDF_URL}),
}
"""What a tool may give beside text, as Anthropic's messages have it and as Responses do."""
AS_PARTS = {
    "an image": {"type": "image_url", "image_url": {"url": IMAGE_URL}},
    "a file": {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF_URL}},
}
USER = {"type": "message", "role": "user", "content": "Go."}

values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=4)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=3)
inputs = st.fixed_dictionaries({"input": st.text(max_size=20)})
named = st.tuples(st.sampled_from(["ls", "local_shell", "inner"]), arguments) | st.tuples(
    st.just("apply_patch"), inputs
)
calls = st.builds(
    lambda call, ascii_only, marks: (call[0], json.dumps(call[1], ensure_ascii=ascii_only, separators=marks)),
    named,
    st.booleans(),
    st.sampled_from([(", ", ": "), (",", ":")]),
)
said = st.builds(
    lambda text, thought, made: {
        "role": "assistant",
        "content": text or (None if made else ""),
        **({"reasoning_content": thought} if thought else {}),
        **(
            {
                "tool_calls": [
                    {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
                    for place, (name, arguments) in enumerate(made)
                ]
            }
            if made
            else {}
        ),
    },
    st.text(max_size=20),
    st.text(max_size=20),
    st.lists(calls, max_size=3),
)
RESPONSES_TOOLS = [
    {"type": "function", "name": "ls", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "local_shell"},
    {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "inner", "parameters": {}}]},
]


def streamed(wire: Wire, native: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """An answer after it was sent as a stream and put together again."""
    assembly = wire.assembly()
    for line in wire.events(native, request).decode().split("\n"):
        if line.startswith("data: "):
            assert assembly.add(line.removeprefix("data: ")) is None
    assert assembly.done
    return assembly.whole()


def asked_with(wire: Wire, native: dict[str, Any] | None = None) -> dict[str, Any]:
    """A request, with an answer and what its tools gave where there is one."""
    if wire is ANTHROPIC:
        more = (
            [{"role": "assistant", "content": native["content"]}, {"role": "user", "content": "Go."}] if native else []
        )
        return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}, *more]}
    output = [*native["output"], USER] if native else []
    return {"model": "m", "input": [USER, *output], "tools": RESPONSES_TOOLS}


@TRANSLATED
@settings(max_examples=60, deadline=None)
@given(message=said)
def test_what_a_model_said_comes_back_to_it_letter_for_letter(wire: Wire, message: dict[str, Any]) -> None:
    request = asked_with(wire)
    chat = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
    native = wire.answer_of(chat, request)
    assert streamed(wire, native, request) == native
    again = wire.chat_request(asked_with(wire, native))["messages"][1:-1]
    empty = not message["content"] and not message.get("tool_calls") and not message.get("reasoning_content")
    assert again == ([] if empty and wire is RESPONSES else [message])


@TRANSLATED
def test_what_the_system_says_in_the_midst_of_a_conversation_the_user_says(wire: Wire) -> None:
    words = [("user", "Go."), ("assistant", "I go."), ("system", "Be brief.")]
    messages = [{"role": role, "content": text} for role, text in words]
    request = (
        {"system": "You are.", "messages": messages}
        if wire is ANTHROPIC
        else {"instructions": "You are.", "input": messages}
    )
    read = wire.chat_request(request)["messages"]
    assert [each["role"] for each in read] == ["system", "user", "assistant", "user"]
    assert read[-1]["content"] == "Be brief."


@TRANSLATED
@pytest.mark.parametrize("what", SHOWN)
def test_what_a_tool_gives_beside_text_is_shown_by_the_user_behind_all_results(wire: Wire, what: str) -> None:
    block, part = SHOWN[what]
    if wire is ANTHROPIC:
        given_ = [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.png"}, block]}]
        made = {"type": "tool_use", "id": "c1", "name": "view", "input": {}}
        messages = [{"role": "assistant", "content": [made]}, {"role": "user", "content": given_}]
        read = wire.chat_request({"messages": messages})["messages"]
    else:
        output = [{"type": "input_text", "text": "a.png"}, part]
        called = {"type": "function_call", "call_id": "c1", "name": "view", "arguments": "{}"}
        items = [called, {"type": "function_call_output", "call_id": "c1", "output": output}]
        read = wire.chat_request({"input": items})["messages"]
    assert read[1] == {"role": "tool", "tool_call_id": "c1", "content": "a.png"}
    assert read[2] == {"role": "user", "content": [AS_PARTS[what]]}


@TRANSLATED
def test_a_file_that_only_its_owners_servers_could_get_is_refused_in_words(wire: Wire) -> None:
    if wire is ANTHROPIC:
        content = [{"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}]
        request = {"messages": [{"role": "user", "content": content}]}
    else:
        request = {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}
    with pytest.raises(ValueError, match="cannot be had here: send it whole"):
        wire.chat_request(request)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_of_allowed_tools_all_are_offered_and_no_other(mode: str) -> None:
    allowed = [{"type": "function", "name": "ls"}, {"type": "local_shell"}]
    chosen = {"type": "allowed_tools", "mode": mode, "tools": allowed}
    chat = RESPONSES.chat_request({"input": "x", "tools": RESPONSES_TOOLS, "tool_choice": chosen})
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["ls", "local_shell"]
    assert chat["tool_choice"] == mode


def test_a_tool_of_a_namespace_and_the_shell_are_called_as_codex_knows_them() -> None:
    made = [("inner", "{}"), ("local_shell", '{"command": ["ls", "-l"], "timeout_ms": 5}'), ("local_shell", "{}")]
    message = {
        "content": None,
        "tool_calls": [
            {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(made)
        ],
    }
    native = RESPONSES.answer_of({"choices": [{"message": message}]}, {"tools": RESPONSES_TOOLS})
    inner, shell, wrong = (item for item in native["output"] if item["type"] != "reasoning")
    assert (inner["type"], inner["namespace"]) == ("function_call", "mcp")
    assert (shell["type"], shell["action"]) == (
        "local_shell_call", {"type": "exec", "command": ["ls", "-l"], "timeout_ms": 5, "env": {}}
    )  # fmt: skip
    assert (wrong["type"], wrong["name"]) == ("function_call", "local_shell")
    names = [
        tool["function"]["name"] for tool in RESPONSES.chat_request({"input": "x", "tools": RESPONSES_TOOLS})["tools"]
    ]
    assert names == ["ls", "apply_patch", "local_shell", "inner"]


def test_an_agent_that_changes_a_calls_arguments_is_believed() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"a"}'}}
    native = ANTHROPIC.answer_of({"choices": [{"message": {"tool_calls": [call]}}]}, {})
    native["content"][-1]["input"] = {"path": "b"}
    (said_again,) = ANTHROPIC.chat_request({"messages": [{"role": "assistant", "content": native["content"]}]})[
        "messages"
    ]
    assert said_again["tool_calls"][0]["function"]["arguments"] == '{"path": "b"}'


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"input": [{"type": "item_reference", "id": "rs_1"}]},
    ],
)
def test_what_only_a_store_of_answers_could_do_is_refused_in_words(more: dict[str, Any]) -> None:
    with open_forwarder(spec("http://127.0.0.1:9/v1"), [WireProtocol.RESPONSES]) as forwarder:
        done = forwarder.answer("POST", "/v1/responses", {}, json.dumps({"model": "m", "input": "x"} | more).encode())
    assert done.status == 400
    assert "nothing is: send the conversation whole" in json.loads(done.body)["error"]["message"]


@pytest.mark.parametrize(("kind", "media_type"), [("image", "image/png"), ("document", "application/pdf")])
def test_an_image_or_a_file_is_not_counted_by_its_letters(kind: str, media_type: str) -> None:
    block = {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": "a" * 1_000_000}}
    body = {"messages": [{"role": "user", "content": [block, {"type": "text", "text": "See."}]}]}
    with open_forwarder(spec("http://127.0.0.1:9/v1"), [WireProtocol.CHAT]) as forwarder:
        done = forwarder.answer("POST", "/v1/messages/count_tokens", {}, json.dumps(body).encode())
    assert IMAGE < json.loads(done.body)["input_tokens"] < IMAGE + 100
