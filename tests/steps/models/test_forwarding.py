"""An agent program's calls in chat completions: what its real client gets, what is asked, what is recorded."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.models.forwarding import open_forwarder
from swe_argo.steps.models.protocols.table import WIRES
from tests.model_server import Answer, Call, Fault, flaky, model_server, play, rate_limited, refusing
from tests.model_server.answers import CONTEXT_VLLM, FILTERED, NO_CREDIT, SERVER_ERROR, error
from tests.steps.models.agent_side import forwarding
from tests.steps.models.model_specs import ISSUE, TOOLS, spec

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ANSWER = Answer(
    "I look.",
    calls=(Call("ls", {"path": "é"}, id="c1"), Call("cat", {"n": 1}, id="c2")),
    reasoning="Where?",
    prompt_tokens=120,
    cached_tokens=64,
    completion_tokens=17,
    reasoning_tokens=5,
)
BODY = {"model": "m", "messages": ISSUE}


def _client(at: str) -> Any:
    return openai.OpenAI(base_url=f"{at}/v1", api_key="none", max_retries=3, timeout=30)


@BOTH
@pytest.mark.parametrize("endpoint_streams", [False, True])
def test_openai_client_gets_the_answer(stream: bool, endpoint_streams: bool) -> None:
    messages: list[Any] = [{"role": "system", "content": "You are."}, *ISSUE]
    with (
        model_server(play(ANSWER)) as server,
        forwarding(server.url, stream=endpoint_streams) as (at, forwarder, answers),
        _client(at) as agent,
    ):
        if stream:
            with agent.chat.completions.stream(
                model="any",
                messages=messages,
                tools=TOOLS,
                stream_options={"include_usage": True},
            ) as events:
                completion: Any = events.get_final_completion()
        else:
            completion = agent.chat.completions.create(model="any", messages=messages, tools=TOOLS)
    message = completion.choices[0].message
    assert (message.content, message.reasoning_content) == ("I look.", "Where?")
    assert [(tool_call.id, tool_call.function.arguments) for tool_call in message.tool_calls] == [
        ("c1", '{"path": "\\u00e9"}'), ("c2", '{"n": 1}')
    ]  # fmt: skip
    assert completion.choices[0].finish_reason == "tool_calls"
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (120, 17)
    call = answers[0].call
    assert call is not None
    assert call.reply is not None
    assert (call.system, call.messages, call.tools, call.protocol) == ("You are.", ISSUE, TOOLS, WireProtocol.CHAT)
    assert [tool_call.id for tool_call in call.reply.calls] == ["c1", "c2"]
    assert (call.reply.reasoning, call.ended, call.metrics.cached_tokens) == ("Where?", None, 64)
    assert (forwarder.usage.calls, forwarder.usage.prompt_tokens) == (1, 120)
    assert server.calls[0].body["model"] == "m"


@BOTH
@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_repeated_call_ids_become_unique(protocol: WireProtocol, stream: bool) -> None:
    """The endpoint names both calls of each of two answers call_0."""
    conversation: list[Any] = [{"role": "user", "content": "Go."}]
    field = "input" if protocol is WireProtocol.RESPONSES else "messages"
    numbered = Answer(calls=(Call("ls", {"path": "a"}, id="call_0"), Call("ls", {"path": "b"}, id="call_0")))
    names: list[str] = []
    with (
        model_server(play(numbered, numbered, Answer("Done."))) as server,
        open_forwarder(spec(server.url, stream=stream), [WireProtocol.CHAT]) as forwarder,
    ):
        for _ in range(3):
            body = json.dumps({"model": "m", "max_tokens": 9, field: conversation}).encode()
            forwarded = forwarder.answer("POST", f"/v1{WIRES[protocol].path}", {}, body)
            answer = json.loads(forwarded.body)
            if protocol is WireProtocol.CHAT:
                message = answer["choices"][0]["message"]
                ids = [call["id"] for call in message.get("tool_calls") or []]
                results: list[Any] = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ids]
                conversation += [message, *results]
            elif protocol is WireProtocol.RESPONSES:
                ids = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
                results = [{"type": "function_call_output", "call_id": name, "output": "x"} for name in ids]
                conversation += [*answer["output"], *results]
            else:
                ids = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in ids]
                conversation.append({"role": "assistant", "content": answer["content"]})
                conversation.append({"role": "user", "content": results or "Go."})
            assert forwarded.call
            assert forwarded.call.reply
            assert [call.id for call in forwarded.call.reply.calls] == ids
            names += ids
    assert names[0] == "call_0"
    assert len(set(names)) == 4
    history = server.calls[2].body["messages"]
    assert [entry["tool_call_id"] for entry in history if entry["role"] == "tool"] == names
    assert [call["id"] for entry in history for call in entry.get("tool_calls") or []] == names
    assert [json.loads(call["function"]["arguments"]) for call in history[1]["tool_calls"]] == [
        {"path": "a"},
        {"path": "b"},
    ]


def test_spec_overrides_agent_parameters() -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, top_p=0.5, max_output_tokens=100, seed=3, extra_body={"top_k": 1}) as (at, _, _),
        _client(at) as agent,
    ):
        agent.chat.completions.create(
            model="m",
            messages=ISSUE,
            temperature=0.7,
            top_p=0.9,
            max_tokens=5000,
            n=1,
            user="me",
        )
        agent.chat.completions.create(model="m", messages=ISSUE, max_completion_tokens=20)
    first, second = (request.body for request in server.calls)
    assert first == BODY | {
        "temperature": 0.7, "top_p": 0.5, "max_tokens": 100, "n": 1, "user": "me", "seed": 3, "top_k": 1
    }  # fmt: skip
    assert second["max_tokens"] == 20


def test_helper_model_serves_other_names() -> None:
    with model_server(play(Answer("x"))) as server:
        for chosen, expected in (({}, ["m", "m"]), ({"helper_model": "openai/small"}, ["small", "m"])):
            with forwarding(server.url, agent=chosen) as (at, _, answers), _client(at) as agent:
                for name in ("claude-haiku-4-5", "m"):
                    agent.chat.completions.create(model=name, messages=ISSUE)
            assert [request.body["model"] for request in server.calls[-2:]] == expected
            assert [forwarded.call.model for forwarded in answers if forwarded.call] == expected


def test_token_ids_are_hidden_from_agent() -> None:
    with (
        model_server(play(Answer("one two"))) as server,
        forwarding(server.url, logprobs=True) as (at, _, answers),
        _client(at) as agent,
    ):
        agent.chat.completions.create(model="m", messages=ISSUE)
        completion = agent.chat.completions.create(model="m", messages=ISSUE, logprobs=True)
    assert completion.choices[0].logprobs is not None
    first, second = answers
    assert first.call is not None
    assert second.call is not None
    assert first.call.metrics.prompt_token_ids == second.call.metrics.prompt_token_ids != None  # noqa: E711
    assert first.call.metrics.completion_token_ids
    assert b"token_ids" not in first.body + second.body
    assert b"logprobs" not in first.body


def test_transient_faults_are_hidden() -> None:
    with (
        model_server(flaky(play(Answer("x")), rate_limited(), SERVER_ERROR)) as server,
        forwarding(server.url) as (at, forwarder, answers),
        _client(at) as agent,
    ):
        agent.chat.completions.create(model="m", messages=ISSUE)
    assert [forwarded.status for forwarded in answers] == [200]
    assert (forwarder.usage.calls, forwarder.usage.requests) == (1, 3)
    assert forwarder.lost_s > 0


def test_refused_parameter_is_dropped() -> None:
    fault = error(
        400, "Unsupported parameter: 'parallel_tool_calls'", "unsupported_parameter", param="parallel_tool_calls"
    )
    with (
        model_server(refusing("parallel_tool_calls", fault, play(Answer("x")))) as server,
        forwarding(server.url) as (at, _, answers),
        _client(at) as agent,
    ):
        for _ in range(2):
            agent.chat.completions.create(model="m", messages=ISSUE, tools=TOOLS, parallel_tool_calls=True)
    assert [forwarded.status for forwarded in answers] == [200, 200]
    assert server.counts.requests == 3


@BOTH
def test_overflow_is_an_openai_error(stream: bool) -> None:
    with (
        model_server(play(CONTEXT_VLLM)) as server,
        forwarding(server.url) as (at, _, answers),
        _client(at) as agent,
        pytest.raises(openai.BadRequestError) as failure,
    ):
        agent.chat.completions.create(model="m", messages=ISSUE, stream=stream)
    assert failure.value.code == "context_length_exceeded"
    assert "maximum context length" in failure.value.message
    assert server.counts.requests == 1
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.CONTEXT_OVERFLOW]


def test_filtered_answer_is_recorded() -> None:
    with (
        model_server(play(FILTERED)) as server,
        forwarding(server.url) as (at, _, answers),
        _client(at) as agent,
    ):
        completion = agent.chat.completions.create(model="m", messages=ISSUE)
    assert completion.choices[0].finish_reason == "content_filter"
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.CONTENT_FILTER]


def test_endpoint_failure_is_raised() -> None:
    body = json.dumps(BODY).encode()
    with (
        model_server(play(NO_CREDIT)) as server,
        open_forwarder(spec(server.url), [WireProtocol.CHAT]) as forwarder,
        pytest.raises(ConfigError, match="denied access"),
    ):
        forwarder.answer("POST", "/v1/chat/completions", {}, body)
    chosen = spec(server.url, num_retries=1)
    with (
        open_forwarder(chosen, [WireProtocol.CHAT], first_wait_s=0.01) as forwarder,
        pytest.raises(InfraError, match="refuses connections"),
    ):
        forwarder.answer("POST", "/v1/chat/completions", {}, body)


@BOTH
def test_filtered_message_is_empty(stream: bool) -> None:
    body = {"choices": [{"index": 0, "finish_reason": "content_filter"}]}
    with (
        model_server(play(Fault(200, body))) as server,
        forwarding(server.url) as (at, _, answers),
        _client(at) as agent,
    ):
        output = agent.chat.completions.create(model="m", messages=ISSUE, stream=stream)
        ends = [choice.finish_reason for chunk in (output if stream else [output]) for choice in chunk.choices]
    assert ends[-1] == "content_filter"
    assert [forwarded.call.ended for forwarded in answers if forwarded.call] == [StopReason.CONTENT_FILTER]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{", {}),
        (b"[]", {}),
        (b'{"model": "m"}', {}),
        (b'{"messages": ["x"]}', {}),
        (b'{"messages": 7}', {}),
        (b'{"messages": [{"role": "user", "content": [7]}]}', {}),
        (b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": {}}}]}]}', {}),
        (b'{"messages": [], "tools": [{"function": {"name": ["ls"]}}]}', {}),
        (b'{"messages": [], "stream": true, "stream_options": "x"}', {}),
        (b'{"messages": [], "temperature": NaN}', {}),
        (b'{"messages": [], "temperature": 1e999}', {}),
        (b'{"messages": [], "tools": ' + b"[" * 300 + b"]" * 300 + b"}", {}),
        (b"[" * 100_000, {}),
        (b'{"messages": []}', {"content-encoding": "zstd"}),
    ],
)
def test_invalid_body_is_refused(body: bytes, headers: dict[str, str]) -> None:
    with model_server(play(Answer("x"))) as server, open_forwarder(spec(server.url), [WireProtocol.CHAT]) as forwarder:
        forwarded = forwarder.answer("POST", "/v1/chat/completions", headers, body)
    assert (forwarded.status, forwarded.call, server.counts.requests) == (400, None, 0)
    assert json.loads(forwarded.body)["error"]["type"] == "invalid_request_error"


def test_forwarder_refuses_other_paths() -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, agent={"helper_model": "small"}) as (at, forwarder, _),
        _client(at) as agent,
    ):
        assert [model.id for model in agent.models.list()] == ["m", "small"]
        assert agent.models.retrieve("other").id == "other"
        with pytest.raises(openai.NotFoundError, match="nothing but a model here: no POST /v1/embeddings"):
            agent.embeddings.create(model="m", input="x")
        assert forwarder.answer("HEAD", "/", {}, b"").status == 200
        refusal = forwarder.refuse("/v1/chat/completions", "40 calls are all that a run may make")
    assert (refusal.status, server.counts.requests) == (400, 0)
    assert json.loads(refusal.body)["error"]["message"] == "40 calls are all that a run may make"
    assert refusal.headers["x-should-retry"] == "false"


def test_n_choices_are_not_streamed() -> None:
    with (
        model_server(play(Answer("x"))) as server,
        forwarding(server.url, stream=True) as (at, _, _),
        _client(at) as agent,
    ):
        for count in (1, 2):
            agent.chat.completions.create(model="m", messages=ISSUE, n=count)
    assert [request.body.get("stream") for request in server.calls] == [True, None]


def test_concurrent_calls_are_counted() -> None:
    with (
        model_server(play(Answer("one two")), latency_s=0.05) as server,
        forwarding(server.url) as (at, forwarder, answers),
        _client(at) as agent,
        ThreadPoolExecutor(8) as pool,
    ):
        conversations: list[Any] = [[{"role": "user", "content": f"{number}"}] for number in range(32)]
        list(
            pool.map(
                lambda conversation: agent.chat.completions.create(model="m", messages=conversation), conversations
            )
        )
    assert len(answers) == 32
    assert (forwarder.usage.calls, forwarder.usage.requests) == (32, 32)
    assert forwarder.usage.prompt_tokens == server.counts.prompt_tokens
    assert forwarder.usage.completion_tokens == server.counts.completion_tokens
