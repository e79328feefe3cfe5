"""What is asked and what is answered, through the real library, at a server that speaks the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.endpoint import wire_name
from swe_argo.steps.models.reply import NoReplyError
from tests.model_server import Answer, Call, call, flaky, model_server, play, rate_limited, refusing
from tests.model_server.answers import EMPTY, FILTERED, REFUSAL, error
from tests.model_server.wire import logprob, prompt_ids
from tests.steps.models.model_specs import ISSUE, TOOLS, client

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@BOTH
def test_reply_is_same_when_streamed(stream: bool) -> None:
    answer = Answer(
        "I look around.",
        calls=(Call("ls", {"path": "/"}, id="c1"), Call("cat", {"file": "é"}, id="c2")),
        reasoning="Where is it?",
        prompt_tokens=120,
        cached_tokens=64,
        completion_tokens=17,
        reasoning_tokens=5,
    )
    with model_server(play(answer)) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE, tools=TOOLS)
    assert reply.text == "I look around."
    assert reply.reasoning == "Where is it?"
    assert [(call.id, call.name) for call in reply.calls] == [("c1", "ls"), ("c2", "cat")]
    assert reply.calls[1].arguments == '{"file": "\\u00e9"}'
    assert reply.message["reasoning_content"] == "Where is it?"
    metrics, extra = reply.metrics, reply.metrics.extra
    assert (metrics.prompt_tokens, metrics.cached_tokens, metrics.completion_tokens) == (120, 64, 17)
    assert extra is not None
    assert (extra.reasoning_tokens, extra.finish_reason, extra.request_id, extra.requests) == (
        5,
        "tool_calls",
        "req_1",
        1,
    )
    assert extra.seconds > 0
    assert server.calls[0].body.get("stream", False) is stream


def test_request_has_every_spec_field() -> None:
    spec: dict[str, Any] = {
        "temperature": 0.3, "top_p": 0.9, "seed": 7, "max_output_tokens": 99, "reasoning_effort": "low",
        "logprobs": True, "extra_body": {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    }  # fmt: skip
    with model_server(play(Answer("x"))) as server, client(server.url, **spec) as model:
        model.ask(ISSUE, tools=TOOLS, stop=["</function>"])
        model.ask(ISSUE, temperature=0.1)
    first, second = (request.body for request in server.calls)
    assert first == {
        "model": "m", "messages": ISSUE, "tools": TOOLS, "stop": ["</function>"], "temperature": 0.3, "top_p": 0.9,
        "seed": 7, "max_tokens": 99, "reasoning_effort": "low", "logprobs": True, "return_token_ids": True, "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert second["temperature"] == 0.1
    assert "tools" not in second


def test_request_omits_unset_fields() -> None:
    with model_server(play(Answer("x"))) as server, client(server.url, temperature=None) as model:
        model.ask(ISSUE)
    assert server.calls[0].body == {"model": "m", "messages": ISSUE}


def test_client_sends_key_only_if_set(environment: pytest.MonkeyPatch) -> None:
    with model_server(play(Answer("x"))) as server:
        with client(server.url) as model:
            model.ask(ISSUE)
        assert "authorization" not in server.calls[0].headers
    environment.setenv("OPENAI_API_KEY", "sk-of-openai")
    environment.setenv("LLM_API_KEY", "sk-of-the-endpoint")
    from swe_argo.steps.settings import settings

    settings.cache_clear()
    with model_server(play(Answer("x")), key="sk-of-the-endpoint") as server, client(server.url) as model:
        assert model.ask(ISSUE).text == "x"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("openai/gpt-4.1", "gpt-4.1"),
        ("gpt-4.1", "gpt-4.1"),
        ("openai/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("litellm_proxy/claude", "claude"),
        ("hosted_vllm/Qwen/Qwen3", "Qwen/Qwen3"),
        ("Qwen/Qwen3-Coder", "Qwen/Qwen3-Coder"),
        ("anthropic/claude-sonnet-4", "anthropic/claude-sonnet-4"),
        ("openai/", "openai/"),
    ],
)
def test_wire_name_drops_provider_prefix(ours: str, theirs: str) -> None:
    assert wire_name(ours) == theirs


@pytest.mark.parametrize("around", ["{}\n", " {}", "{}\r\n"])
def test_key_is_stripped_of_whitespace(environment: pytest.MonkeyPatch, around: str) -> None:
    key = "sk-tests-0123456789"
    environment.setenv("LLM_API_KEY", around.format(key))
    with model_server(play(Answer("x")), key=key) as server, client(server.url) as model:
        assert model.ask(ISSUE).text == "x"


@pytest.mark.parametrize("key", ["sk-tests-0123\n456789", "sk-tests 0123456789", "sk-tests-ключ-456789"])
@pytest.mark.parametrize("name", ["LLM_API_KEY", "OPENAI_API_KEY"])
def test_key_unfit_for_header_is_refused(environment: pytest.MonkeyPatch, name: str, key: str) -> None:
    environment.setenv(name, key)
    with pytest.raises(ConfigError, match=f"^{name}: it contains a space, a line .*: copy it again") as refusal:
        client("http://127.0.0.1:9/v1")
    assert not [piece for piece in key.split() if piece in str(refusal.value)]


@BOTH
def test_token_ids_are_recorded_once(stream: bool) -> None:
    with (
        model_server(play(call("ls"), Answer("done"))) as server,
        client(server.url, logprobs=True, stream=stream) as model,
    ):
        first = model.ask(ISSUE)
        result = {"role": "tool", "tool_call_id": first.calls[0].id, "content": "a b c"}
        second = model.ask([*ISSUE, first.message, result])
        anew = model.ask(ISSUE)
    one, two = first.metrics, second.metrics
    assert one.prompt_token_ids == prompt_ids(server.calls[0].body)
    assert one.completion_token_ids
    assert one.logprobs == [logprob(token_id) for token_id in one.completion_token_ids]
    assert two.extra is not None
    shared = two.extra.shared_prompt_ids
    assert shared == len(one.prompt_token_ids or []) + len(one.completion_token_ids)
    before = [*(one.prompt_token_ids or []), *one.completion_token_ids]
    assert before[:shared] + (two.prompt_token_ids or []) == prompt_ids(server.calls[1].body)
    assert anew.metrics.prompt_token_ids == one.prompt_token_ids  # a new conversation is recorded whole


def test_token_ids_in_logprobs_are_read() -> None:
    from swe_argo.steps.models.response_body import ModelResponse, metrics_of

    tokens = [{"token": "token_id:17", "logprob": -0.5}, {"token": "token_id:4", "logprob": -1.0}]
    body = {"choices": [{"message": {"content": "x"}, "logprobs": {"content": tokens}}]}
    assert metrics_of(ModelResponse(body, {}, 0.1), LlmSpec(), 1).completion_token_ids == [17, 4]


def test_cost_prefers_prices_of_the_spec() -> None:
    answer = Answer("x", prompt_tokens=1000, cached_tokens=400, completion_tokens=10, cost_usd=0.5)
    prices = {"input_cost_per_token": 1e-3, "output_cost_per_token": 1e-2, "cached_cost_per_token": 1e-4}
    header = {"x-litellm-response-cost": "0.25"}
    cases: list[tuple[Answer, dict[str, Any], float | None]] = [
        (answer, prices, 0.6 + 0.04 + 0.1),
        (answer, prices | {"cached_cost_per_token": None}, 1.0 + 0.1),
        (answer, {}, 0.5),
        (Answer("x", headers=header), {}, 0.25),
        (Answer("x"), {}, None),
    ]
    for output, spec, cost in cases:
        with model_server(play(output)) as server, client(server.url, **spec) as model:
            cost_usd = model.ask(ISSUE).metrics.cost_usd
            assert cost_usd == (None if cost is None else pytest.approx(cost))
            assert model.usage.cost_usd == cost_usd


@BOTH
def test_empty_answer_is_counted(stream: bool) -> None:
    with model_server(play(EMPTY)) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE)
        assert (reply.text, reply.calls, reply.message["content"]) == ("", (), "")
        assert (model.usage.calls, model.usage.prompt_tokens) == (1, server.counts.prompt_tokens)


@BOTH
def test_refusal_and_filter_are_counted(stream: bool) -> None:
    for answer, reason in ((REFUSAL, StopReason.REFUSAL), (FILTERED, StopReason.CONTENT_FILTER)):
        with model_server(play(answer)) as server, client(server.url, stream=stream) as model:
            with pytest.raises(NoReplyError) as ended:
                model.ask(ISSUE)
            assert ended.value.reason is reason
            assert ended.value.metrics is not None
            assert model.usage.completion_tokens == server.counts.completion_tokens


@BOTH
def test_invalid_arguments_are_wrapped(stream: bool) -> None:
    answer = Answer(calls=(Call("ls", '{"path": "/'),))
    with model_server(play(answer)) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE)
    assert reply.calls[0].arguments == '{"path": "/'
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"unreadable": "{\\"path\\": \\"/"}'


def test_cut_answer_reports_length() -> None:
    with model_server(play(Answer("one two three four"))) as server, client(server.url, max_output_tokens=2) as model:
        reply = model.ask(ISSUE)
    assert reply.text == "one two"
    assert reply.metrics.extra is not None
    assert reply.metrics.extra.finish_reason == "length"


def test_request_replaces_surrogates() -> None:
    with model_server(play(Answer("x"))) as server, client(server.url) as model:
        model.ask([{"role": "user", "content": "bytes: \udc80\udcff"}])
    assert server.calls[0].body["messages"][0]["content"] == "bytes: ??"


def test_client_adopts_newer_limit_field() -> None:
    refused = error(
        400,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
        "invalid_request_error",
        "max_tokens",
    )
    script = refusing("max_tokens", refused, play(Answer("x")))
    with model_server(script) as server, client(server.url, max_output_tokens=50) as model:
        first, _ = model.ask(ISSUE), model.ask(ISSUE)
        assert (model.usage.calls, model.usage.requests) == (2, 3)
    assert [request.body.get("max_completion_tokens") for request in server.calls] == [None, 50, 50]
    assert first.metrics.extra is not None
    assert first.metrics.extra.requests == 2


def test_client_drops_refused_parameters() -> None:
    temperature = error(
        400,
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported.",
        "unsupported_value",
        "invalid_request_error",
        "temperature",
    )
    ids = error(400, "Unrecognized request argument supplied: return_token_ids", None, "invalid_request_error")
    script = refusing("temperature", temperature, refusing("return_token_ids", ids, play(Answer("x"))))
    with model_server(script) as server, client(server.url, logprobs=True) as model:
        assert model.ask(ISSUE).metrics.logprobs
        model.ask(ISSUE)
        assert model.wording.without == {"temperature", "return_token_ids"}
    assert server.counts.requests == 4


def test_usage_equals_server_totals() -> None:
    script = flaky(play(call("ls"), Answer("done", reasoning="so")), rate_limited(), rate_limited())
    with model_server(script) as server, client(server.url) as model:
        reply = model.ask(ISSUE)
        model.ask([*ISSUE, reply.message, {"role": "tool", "tool_call_id": reply.calls[0].id, "content": "x"}])
        usage, counts = model.usage, server.counts
    assert (usage.requests, usage.calls) == (counts.requests, counts.calls) == (6, 2)
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
    assert usage.reasoning_tokens == counts.reasoning_tokens > 0


def test_client_reuses_one_connection() -> None:
    with model_server(play(Answer("x"))) as server, client(server.url) as model:
        for _ in range(5):
            model.ask(ISSUE)
    assert server.counts.connections == 1
