"""An agent program's calls in Anthropic's messages: passed through, and translated to chat completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import InfraError
from swe_argo.steps.models.forwarding import open_forwarder
from tests.model_server import Answer, Call, Fault, flaky, model_server, play, rate_limited
from tests.model_server.answers import BAD_ARGUMENTS, CONTEXT_VLLM, REFUSAL, STREAM_ERROR, TRUNCATED
from tests.steps.models.agent_side import forwarding
from tests.steps.models.model_specs import spec

anthropic = pytest.importorskip("anthropic", reason="the extra dev is not installed")

SPEAKS = pytest.mark.parametrize(
    "speaks", [(WireProtocol.ANTHROPIC, WireProtocol.CHAT), (WireProtocol.CHAT,)], ids=["passed", "translated"]
)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
TOOLS = [{"name": "ls", "description": "", "input_schema": {"type": "object"}}]
SYSTEM = [{"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be."}]
ASKED: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "There is a bug."}]}]
ANSWER = Answer(
    "I look.",
    calls=(Call("ls", {"path": "é"}, id="c1"), Call("ls", {}, id="c2")),
    reasoning="Where?",
    prompt_tokens=120,
    cached_tokens=64,
    completion_tokens=17,
)


def _client(at: str) -> Any:
    return anthropic.Anthropic(base_url=at, api_key="none", max_retries=3, timeout=30)


def _ask(agent: Any, stream: bool, messages: list[Any], **more: Any) -> Any:
    request = {"model": "claude", "max_tokens": 1000, "system": SYSTEM, "tools": TOOLS, "messages": messages} | more
    if not stream:
        return agent.messages.create(**request)
    with agent.messages.stream(**request) as events:
        return events.get_final_message()


@SPEAKS
@BOTH
@pytest.mark.parametrize("endpoint_streams", [False, True])
def test_anthropic_client_gets_answer(speaks: tuple[WireProtocol, ...], stream: bool, endpoint_streams: bool) -> None:
    with (
        model_server(play(ANSWER, Answer("Done."))) as server,
        forwarding(server.url, *speaks, stream=endpoint_streams) as (at, forwarder, answers),
        _client(at) as agent,
    ):
        reply = _ask(agent, stream, ASKED)
        content = [block.model_dump(exclude_none=True) for block in reply.content]
        results = [
            {"type": "tool_result", "tool_use_id": "c1", "content": "a.py"},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "b"}], "is_error": True},
            {"type": "text", "text": "Go on."},
        ]
        later = [*ASKED, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
        last = _ask(agent, stream, later)
    assert [block.type for block in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert (reply.content[0].thinking, reply.content[1].text, last.content[0].text) == ("Where?", "I look.", "Done.")
    assert [(block.id, block.input) for block in reply.content[2:]] == [("c1", {"path": "é"}), ("c2", {})]
    assert (reply.stop_reason, last.stop_reason) == ("tool_use", "end_turn")
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens, reply.usage.output_tokens) == (56, 64, 17)
    first, second = (forwarded.call for forwarded in answers)
    assert first is not None
    assert second is not None
    assert first.reply is not None
    assert (first.system, first.messages) == ("You are.\n\nBe.", [{"role": "user", "content": "There is a bug."}])
    assert [tool["function"]["name"] for tool in first.tools] == ["ls"]
    assert [tool_call.id for tool_call in first.reply.calls] == ["c1", "c2"]
    assert (first.metrics.prompt_tokens, first.metrics.cached_tokens) == (120, 64)
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert second.messages[1]["reasoning_content"] == "Where?"
    assert second.messages[3] == {"role": "tool", "tool_call_id": "c2", "content": "b"}
    assert forwarder.usage.calls == server.counts.calls == 2
    assert {request.protocol for request in server.calls} == {speaks[0]}
    if speaks[0] is WireProtocol.ANTHROPIC:
        body = server.calls[1].body
        assert (body["system"], body["messages"], body["tools"]) == (SYSTEM, later, TOOLS)
        assert server.calls[1].headers["anthropic-version"].startswith("20")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_returns_in_its_field(field: Any) -> None:
    with (
        model_server(play(Answer("I look.", reasoning="Where?", reasoning_field=field), Answer("Done."))) as server,
        forwarding(server.url) as (at, _, _),
        _client(at) as agent,
    ):
        content = [block.model_dump() for block in _ask(agent, True, ASKED).content]
        _ask(agent, True, [*ASKED, {"role": "assistant", "content": content}, *ASKED])
    assert server.calls[1].body["messages"][2] == {"role": "assistant", "content": "I look.", field: "Where?"}


def test_spec_sets_anthropic_fields() -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, WireProtocol.ANTHROPIC, temperature=0.3, max_output_tokens=50) as (at, _, _),
        _client(at) as agent,
    ):
        _ask(
            agent,
            False,
            ASKED,
            extra_body={"temperature": 1.0},
            extra_headers={"anthropic-beta": "b-1", "anthropic-version": "v-1"},
        )
    body = server.calls[0].body
    assert (body["temperature"], body["max_tokens"], body["model"]) == (0.3, 50, "m")
    assert [server.calls[0].headers[f"anthropic-{name}"] for name in ("beta", "version")] == ["b-1", "v-1"]


def test_key_is_sent_in_both_headers(environment: pytest.MonkeyPatch) -> None:
    from swe_argo.steps.settings import settings

    environment.setenv("LLM_API_KEY", "sk-of-the-endpoint")
    settings.cache_clear()
    with (
        model_server(play(Answer("x")), key="sk-of-the-endpoint") as server,
        forwarding(server.url, WireProtocol.ANTHROPIC) as (at, _, _),
        _client(at) as agent,
    ):
        assert _ask(agent, False, ASKED).content[0].text == "x"
    assert server.calls[0].headers["x-api-key"] == "sk-of-the-endpoint"


@SPEAKS
@BOTH
def test_overflow_is_an_anthropic_error(speaks: tuple[WireProtocol, ...], stream: bool) -> None:
    with (
        model_server(play(CONTEXT_VLLM)) as server,
        forwarding(server.url, *speaks) as (at, _, answers),
        _client(at) as agent,
        pytest.raises(anthropic.BadRequestError, match="prompt is too long") as failure,
    ):
        _ask(agent, stream, ASKED)
    assert failure.value.body["error"]["type"] == "invalid_request_error"
    assert server.counts.requests == 1
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.CONTEXT_OVERFLOW]


@SPEAKS
def test_transient_faults_are_hidden(speaks: tuple[WireProtocol, ...]) -> None:
    with (
        model_server(flaky(play(Answer("one two")), rate_limited(), STREAM_ERROR, TRUNCATED)) as server,
        forwarding(server.url, *speaks, stream=True) as (at, _, answers),
        _client(at) as agent,
    ):
        assert _ask(agent, True, ASKED).content[0].text == "one two"
    assert [forwarded.status for forwarded in answers] == [200]
    assert server.counts.requests == 4


@SPEAKS
def test_refusal_is_recorded(speaks: tuple[WireProtocol, ...]) -> None:
    with (
        model_server(play(REFUSAL)) as server,
        forwarding(server.url, *speaks) as (at, _, answers),
        _client(at) as agent,
    ):
        assert _ask(agent, True, ASKED).stop_reason == "refusal"
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.REFUSAL]


def test_invalid_arguments_reach_agent() -> None:
    with (
        model_server(play(BAD_ARGUMENTS)) as server,
        forwarding(server.url) as (at, _, _),
        _client(at) as agent,
    ):
        (block,) = _ask(agent, True, ASKED).content
    assert block.input == {"unreadable": '{"command": "ls'}


@BOTH
def test_odd_calls_are_translated(stream: bool) -> None:
    called = {"function": {"name": "ls", "arguments": {"path": "a"}}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "tool_calls": [called, None]}
    usage = json.dumps({"prompt_tokens": "7", "completion_tokens": 3, "prompt_tokens_details": "none"})
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    with (
        model_server(play(Fault(200, body))) as server,
        forwarding(server.url) as (at, _, _),
        _client(at) as agent,
    ):
        reply = _ask(agent, stream, ASKED)
    assert [block.type for block in reply.content] == ["text", "tool_use"]
    assert (reply.content[0].text, reply.content[1].input, reply.stop_reason) == ("I look.", {"path": "a"}, "tool_use")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)


@pytest.mark.parametrize(("field", "word"), [("stop_reason", "END"), ("matched_stop", "END"), ("stop_reason", 17)])
def test_stop_word_is_reported(field: str, word: str | int) -> None:
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop", field: word}]}
    with (
        model_server(play(Fault(200, body))) as server,
        forwarding(server.url) as (at, _, _),
        _client(at) as agent,
    ):
        reply = _ask(agent, True, ASKED, stop_sequences=["END"])
    assert server.calls[0].body["stop"] == ["END"]
    expected = ("stop_sequence", "END") if word == "END" else ("end_turn", None)
    assert (reply.stop_reason, reply.stop_sequence) == expected


def test_unusable_answer_is_infra() -> None:
    body = {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": [{"type": "server_tool_use"}]}
    request = json.dumps({"model": "m", "max_tokens": 9, "messages": ASKED, "stream": True}).encode()
    with (
        model_server(play(Fault(200, body))) as server,
        open_forwarder(spec(server.url), [WireProtocol.ANTHROPIC]) as forwarder,
        pytest.raises(InfraError, match="gave no message of Anthropic's that can be handed on") as failure,
    ):
        forwarder.answer("POST", "/v1/messages", {}, request)
    assert failure.value.failure_class is FailureClass.MODEL


def test_unencodable_header_is_dropped() -> None:
    request = json.dumps({"model": "m", "max_tokens": 9, "messages": ASKED}).encode()
    headers = {"anthropic-beta": "b-ü", "anthropic-version": "v-1\nx: y"}
    with (
        model_server(play(Answer("x"))) as server,
        open_forwarder(spec(server.url), [WireProtocol.ANTHROPIC]) as forwarder,
    ):
        assert forwarder.answer("POST", "/v1/messages", headers, request).status == 200
    assert "anthropic-beta" not in server.calls[0].headers


@SPEAKS
def test_token_count_needs_no_endpoint(speaks: tuple[WireProtocol, ...]) -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, *speaks) as (at, _, answers),
        _client(at) as agent,
    ):
        counted = agent.messages.count_tokens(model="m", system=SYSTEM, messages=ASKED, tools=TOOLS)
        assert [model.id for model in agent.models.list()] == ["m"]
        with pytest.raises(anthropic.NotFoundError, match="nothing but a model here"):
            agent.messages.batches.list()
    assert 10 < counted.input_tokens < 100
    assert json.loads(answers[-1].body)["type"] == "error"
    assert server.counts.requests == 0
    assert all(forwarded.call is None for forwarded in answers)
