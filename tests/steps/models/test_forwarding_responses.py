"""An agent program's calls in OpenAI's Responses: passed through, and translated to chat completions."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from tests.model_server import Answer, Call, Fault, model_server, play
from tests.model_server.answers import BAD_ARGUMENTS, CONTEXT_OPENAI, STREAM_ERROR
from tests.model_server.wire import prompt_ids
from tests.steps.models.agent_side import forwarding

SPEAKS = pytest.mark.parametrize(
    "speaks", [(WireProtocol.RESPONSES, WireProtocol.CHAT), (WireProtocol.CHAT,)], ids=["passed", "translated"]
)
TOOLS = [
    {"type": "function", "name": "ls", "description": "", "strict": False, "parameters": {"type": "object"}},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {"type": "web_search"},
]
ANSWER = Answer(
    "I look.",
    calls=(Call("ls", {"path": "é"}, id="c1"), Call("apply_patch", {"input": "*** Begin\n"}, id="c2")),
    reasoning="Where?",
    prompt_tokens=120,
    cached_tokens=64,
    completion_tokens=17,
    reasoning_tokens=5,
)
ASKED: list[Any] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "There is a bug."}]},
]


def _client(at: str) -> Any:
    return openai.OpenAI(base_url=f"{at}/v1", api_key="none", max_retries=3, timeout=30)


def _ask(agent: Any, stream: bool, items: list[Any], **more: Any) -> Any:
    request = {"model": "m", "instructions": "You are.", "input": items, "tools": TOOLS, "store": False} | more
    if not stream:
        return agent.responses.create(**request)
    with agent.responses.stream(**request) as events:
        for _ in events:
            pass
        return events.get_final_response()


@SPEAKS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("endpoint_streams", [False, True])
def test_openai_client_gets_the_answer(speaks: tuple[WireProtocol, ...], stream: bool, endpoint_streams: bool) -> None:
    with (
        model_server(play(ANSWER, Answer("Done."))) as server,
        forwarding(server.url, *speaks, stream=endpoint_streams) as (at, forwarder, answers),
        _client(at) as agent,
    ):
        reply = _ask(agent, stream, ASKED)
        output = [item.model_dump(exclude_none=True) for item in reply.output]
        results = [
            {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
        ]
        last = _ask(agent, stream, [*ASKED, *output, *results])
    kinds = [item["type"] for item in output]
    assert kinds[:3] == ["reasoning", "message", "function_call"]
    assert (reply.output_text, last.output_text) == ("I look.", "Done.")
    assert [item.call_id for item in reply.output if hasattr(item, "call_id")] == ["c1", "c2"]
    assert json.loads(reply.output[2].arguments) == {"path": "é"}
    assert reply.output[3].type == "custom_tool_call"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (120, 17)
    assert reply.usage.input_tokens_details.cached_tokens == 64
    first, second = (forwarded.call for forwarded in answers)
    assert first is not None
    assert second is not None
    assert first.reply is not None
    assert (first.system, first.messages) == ("You are.\n\nBe brief.", [{"role": "user", "content": "There is a bug."}])
    assert [tool["function"]["name"] for tool in first.tools] == ["ls", "apply_patch"]
    assert [tool_call.id for tool_call in first.reply.calls] == ["c1", "c2"]
    assert first.reply.reasoning == "Where?"
    assert (first.metrics.cached_tokens, first.metrics.prompt_tokens) == (64, 120)
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool", "tool"]
    assert second.messages[1]["reasoning_content"] == "Where?"
    assert [call["id"] for call in second.messages[1]["tool_calls"]] == ["c1", "c2"]
    assert second.messages[3] == {"role": "tool", "tool_call_id": "c2", "content": "ok"}
    assert forwarder.usage.calls == server.counts.calls == 2
    assert {request.protocol for request in server.calls} == {speaks[0]}


def test_translation_keeps_exact_text() -> None:
    call = Call("ls", '{"path":  "a"}', id="c1")
    with (
        model_server(play(Answer("I look.", calls=(call,)), Answer("Done."))) as server,
        forwarding(server.url, WireProtocol.CHAT) as (at, _, answers),
        _client(at) as agent,
    ):
        output = [item.model_dump(exclude_none=True) for item in _ask(agent, True, ASKED).output]
        _ask(agent, True, [*ASKED, *output, {"type": "function_call_output", "call_id": "c1", "output": "a"}])
    first, second = (request.body for request in server.calls)
    assert answers[0].call is not None
    length = len(prompt_ids(first)) + (answers[0].call.metrics.completion_tokens or 0)
    assert len(prompt_ids(second)) > length
    assert prompt_ids(second)[: len(prompt_ids(first))] == prompt_ids(first)
    assert second["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"path":  "a"}'


def test_spec_sets_responses_fields() -> None:
    chosen: dict[str, Any] = {"temperature": 0.3, "max_output_tokens": 50, "reasoning_effort": "low"}
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, WireProtocol.RESPONSES, **chosen) as (at, _, _),
        _client(at) as agent,
    ):
        _ask(agent, False, ASKED, reasoning={"effort": "high", "summary": "auto"}, max_output_tokens=900)
    body = server.calls[0].body
    assert (body["temperature"], body["max_output_tokens"]) == (0.3, 50)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["tools"] == TOOLS


def test_token_ids_need_chat_completions() -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, WireProtocol.RESPONSES, WireProtocol.CHAT, logprobs=True) as (at, _, answers),
        _client(at) as agent,
    ):
        _ask(agent, False, ASKED)
    assert [request.protocol for request in server.calls] == ["chat"]
    assert [bool(forwarded.call.metrics.prompt_token_ids) for forwarded in answers if forwarded.call] == [True]


@SPEAKS
def test_overflow_is_a_responses_error(speaks: tuple[WireProtocol, ...]) -> None:
    with (
        model_server(play(CONTEXT_OPENAI)) as server,
        forwarding(server.url, *speaks) as (at, _, answers),
        _client(at) as agent,
    ):
        failed = list(agent.responses.create(model="m", input=ASKED, stream=True))[-1]
        with pytest.raises(openai.BadRequestError) as failure:
            _ask(agent, False, ASKED)
    assert (failed.type, failed.response.error.code) == ("response.failed", "context_length_exceeded")
    assert failure.value.code == "context_length_exceeded"
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.CONTEXT_OVERFLOW] * 2


def test_stream_error_is_retried() -> None:
    with (
        model_server(play([STREAM_ERROR, Answer("x y")])) as server,
        forwarding(server.url, WireProtocol.RESPONSES, stream=True) as (at, _, answers),
        _client(at) as agent,
    ):
        assert _ask(agent, True, ASKED).output_text == "x y"
    assert [forwarded.status for forwarded in answers] == [200]
    assert server.counts.requests == 2


def test_cut_answer_is_incomplete() -> None:
    for speaks in ((WireProtocol.RESPONSES,), (WireProtocol.CHAT,)):
        with (
            model_server(play(Answer("one two three four"))) as server,
            forwarding(server.url, *speaks) as (at, _, _),
            _client(at) as agent,
        ):
            cut = agent.responses.create(model="m", input="hi", max_output_tokens=2)
            whole = agent.responses.create(model="m", input="hi")
            with pytest.raises(openai.BadRequestError, match="send the conversation whole"):
                agent.responses.create(model="m", input="hi", previous_response_id="resp_1")
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (whole.status, whole.output_text) == ("completed", "one two three four")


def test_passed_shell_calls_are_recorded() -> None:
    action = {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}
    item = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": action, "status": "completed"}
    body = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "error": None}
    with (
        model_server(play(Fault(200, body))) as server,
        forwarding(server.url, WireProtocol.RESPONSES) as (at, _, answers),
        _client(at) as agent,
    ):
        reply = _ask(agent, False, ASKED, tools=[{"type": "shell", "environment": {"type": "local"}}])
    assert [entry.type for entry in reply.output] == ["shell_call"]
    assert answers[0].call is not None
    assert answers[0].call.reply is not None
    (call,) = answers[0].call.reply.calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "shell", {"commands": ["ls"]})


def test_malformed_arguments_are_wrapped() -> None:
    with (
        model_server(play(BAD_ARGUMENTS, Answer("Done."))) as server,
        forwarding(server.url, WireProtocol.CHAT) as (at, _, _),
        _client(at) as agent,
    ):
        (function_call,) = [item.model_dump(exclude_none=True) for item in _ask(agent, True, ASKED).output]
        output = {"type": "function_call_output", "call_id": function_call["call_id"], "output": "cannot be parsed"}
        _ask(agent, True, [*ASKED, function_call, output])
    assert function_call["arguments"] == '{"command": "ls'
    (call,) = server.calls[1].body["messages"][-2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"unreadable": '{"command": "ls'}
