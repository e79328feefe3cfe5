"""What fails, by whose doing, and how it is told."""

from __future__ import annotations

import logging
import socket
import time
import traceback
from dataclasses import replace

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, InfraError, StepError
from swe_argo.steps.models.reply import NoReplyError
from swe_argo.steps.settings import settings
from tests.model_server import Answer, Fault, flaky, model_server, play, rate_limited
from tests.model_server.answers import (
    BAD_GATEWAY,
    BAD_KEY,
    CONTENT_FILTER_AZURE,
    CONTEXT_OPENAI,
    CONTEXT_VLLM,
    DROP,
    HANG,
    NO_CREDIT,
    NO_QUOTA,
    SERVER_ERROR,
    STREAM_ERROR,
    TOOLS_REFUSED_VLLM,
    TRUNCATED,
    UNAVAILABLE,
    UNKNOWN_MODEL,
    error,
)
from tests.steps.models.model_specs import ISSUE, TOOLS, client

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
PASSING = {
    "429": rate_limited(),
    "500": SERVER_ERROR,
    "502": BAD_GATEWAY,
    "503": UNAVAILABLE,
    "dropped": DROP,
    "truncated": TRUNCATED,
    "in the stream": STREAM_ERROR,
    "404 of a proxy": Fault(404, "default backend - 404", {"Content-Type": "text/plain"}),
    "200 with an error in it": Fault(200, {"error": {"message": "provider overloaded", "code": 502}}),
    "200 with an error and no message": Fault(200, {"error": "overloaded", "choices": [{"message": "none"}]}),
    "200 that is no JSON": Fault(200, "<html>"),
    "200 that is nested too deeply": Fault(200, "[" * 100_000),
    "200 without choices": Fault(200, {"id": "c", "object": "chat.completion"}),
    "200 with no choices": Fault(200, {"id": "c", "choices": []}),
    "200 with choices that are null": Fault(200, {"id": "c", "choices": None}),
    "200 with a choice that is null": Fault(200, {"id": "c", "choices": [None]}),
    "200 with no message": Fault(200, {"id": "c", "choices": [{"index": 0, "finish_reason": "stop"}]}),
    "200 with a message that is null": Fault(200, {"choices": [{"message": None, "finish_reason": "stop"}]}),
    "200 with a message that is text": Fault(200, {"choices": [{"message": "hello", "finish_reason": "stop"}]}),
    "200 with null in it": Fault(200, "null"),
    "broken off by OpenRouter's provider": Fault(
        200,
        {
            "choices": [
                {
                    "message": {"content": "half"},
                    "finish_reason": "error",
                    "error": {"code": 502, "message": "provider disconnected"},
                }
            ]
        },
    ),
    "broken off by vLLM": Fault(200, {"choices": [{"message": {"content": "I"}, "finish_reason": "abort"}]}),
}


@BOTH
def test_unparsed_call_becomes_text(stream: bool) -> None:
    body = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<function=ls{}"}
    with model_server(play(Fault(400, {"error": body}))) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE, tools=TOOLS)
        assert (model.usage.calls, model.usage.requests) == (1, 1)
    assert (reply.text, reply.calls) == ("<function=ls{}", ())


@BOTH
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_transient_fault_is_retried(fault: Fault, stream: bool) -> None:
    with model_server(flaky(play(Answer("x")), fault, fault)) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE)
        assert model.usage.requests == server.counts.requests == 3
        assert model.usage.prompt_tokens == server.counts.prompt_tokens
    assert reply.text == "x"
    assert reply.metrics.extra is not None
    assert reply.metrics.extra.requests == 3


@BOTH
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_lasting_fault_is_infra_failure(fault: Fault, stream: bool) -> None:
    with model_server(play(fault)) as server, client(server.url, stream=stream, num_retries=2) as model:
        with pytest.raises(InfraError, match="the last of 3 requests") as failed:
            model.ask(ISSUE)
        assert failed.value.failure_class is FailureClass.MODEL
        assert server.url in failed.value.reason
        assert model.usage.requests == server.counts.requests == 3
        assert model.usage.calls == 0


def test_silence_is_retried() -> None:
    with model_server(play(HANG)) as server, client(server.url, timeout=2, num_retries=1) as model:
        with pytest.raises(InfraError, match="no answer within"):
            model.ask(ISSUE, timeout_s=60)
        assert server.counts.requests == 2


def test_call_timeout_is_agents_outcome() -> None:
    with model_server(play(HANG)) as server, client(server.url) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE, timeout_s=2)
        assert ended.value.reason is StopReason.CALL_TIMEOUT
        assert model.usage.requests == server.counts.requests == 1


def test_fault_time_is_not_the_agents() -> None:
    with model_server(flaky(play(HANG), SERVER_ERROR)) as server, client(server.url) as model:
        with pytest.raises(InfraError):
            model.ask(ISSUE, timeout_s=2)
        assert server.counts.requests == 2


def test_closed_port_is_named_by_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        url = f"http://127.0.0.1:{line.getsockname()[1]}/v1"
    with client(url, num_retries=1) as model:
        with pytest.raises(InfraError, match=f"the model endpoint at {url} refuses connections"):
            model.ask(ISSUE)
        assert model.usage.requests == 0  # none was sent


def test_unknown_host_is_reported() -> None:
    message = r"http://nowhere\.invalid/v1 is on a host whose name cannot be resolved"
    with client("http://nowhere.invalid/v1", num_retries=0) as model, pytest.raises(InfraError, match=message):
        model.ask(ISSUE)


def test_retry_after_is_waited_for() -> None:
    with model_server(flaky(play(Answer("x")), rate_limited(0.6))) as server, client(server.url) as model:
        began = time.monotonic()
        model.ask(ISSUE)
        assert time.monotonic() - began >= 0.6


@pytest.mark.timeout(60)  # so it does not wait until the time is over, either
def test_wait_beyond_deadline_is_skipped() -> None:
    with model_server(play(rate_limited(110))) as server, client(server.url) as model:
        with pytest.raises(InfraError, match="429"):
            model.ask(ISSUE, timeout_s=100)
        assert server.counts.requests == 1


@pytest.mark.parametrize("fault", [BAD_KEY, NO_CREDIT, NO_QUOTA], ids=["401", "402", "insufficient_quota"])
def test_dead_key_is_never_retried(fault: Fault) -> None:
    with model_server(play(fault)) as server, client(server.url) as model:
        with pytest.raises(ConfigError, match=r"denied access|requires an API key") as failed:
            model.ask(ISSUE)
        assert failed.value.failure_class is FailureClass.MODEL_ACCESS
        assert server.counts.requests == model.usage.requests == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (CONTEXT_OPENAI, StopReason.CONTEXT_OVERFLOW),
        (CONTEXT_VLLM, StopReason.CONTEXT_OVERFLOW),
        (CONTENT_FILTER_AZURE, StopReason.CONTENT_FILTER),
    ],
)
def test_rejected_prompt_is_outcome(fault: Fault, reason: StopReason) -> None:
    with model_server(play(fault)) as server, client(server.url) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is reason
        assert server.counts.requests == 1


@pytest.mark.parametrize(
    ("fault", "spec", "field"),
    [
        (TOOLS_REFUSED_VLLM, {}, "agent.use_fn_calling"),
        (UNKNOWN_MODEL, {}, "agent.model"),
        (Fault(404, {"detail": "Not Found"}), {}, "llm.base_url"),
        (error(400, "Unsupported parameter: 'seed'", "unsupported_parameter", "", "seed"), {"seed": 1}, "llm.seed"),
        (error(400, "top_p is not supported here"), {"top_p": 0.5}, "llm.top_p"),
        (
            error(400, "max_tokens is too large: 9", None, "", "max_tokens"),
            {"max_output_tokens": 9},
            "llm.max_output_tokens",
        ),
        (error(400, "Unknown parameter: 'x'", None, "", "x"), {"extra_body": {"x": 1}}, "llm.extra_body.x"),
        (error(400, "temperature must be at most 1"), {"temperature": 2.0}, "llm.temperature"),
    ],
)
def test_wrong_request_names_the_field(fault: Fault, spec: dict[str, object], field: str) -> None:
    with model_server(play(fault)) as server, client(server.url, **spec) as model:
        with pytest.raises(ConfigError) as failed:
            model.ask(ISSUE, tools=TOOLS)
        assert failed.value.field == field
        assert failed.value.failure_class is FailureClass.CONFIG
        assert "\n" not in failed.value.reason
        assert server.counts.requests == 1


KEY = "sk-proj-Zq8Rt6Yw2Lk9Xc4Vb7Nm1"
ECHOES = {
    "whole": f"Incorrect API key provided: {KEY}",
    "masked": "Incorrect API key provided: sk-proj-********************b7Nm1",
    "dotted": "Received API Key = sk-...7Nm1",
    "half": f"bad key {KEY[:14]}",
    "hashed": "Key Hash (Token) =" + __import__("hashlib").sha256(KEY.encode()).hexdigest(),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
@pytest.mark.parametrize("status", [401, 400, 500])
def test_echoed_key_is_redacted(
    echo: str, status: int, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv("OPENAI_API_KEY", KEY)
    settings.cache_clear()
    caplog.set_level(logging.DEBUG)
    with (
        model_server(play(replace(error(status, echo))), key=KEY) as server,
        client(server.url, num_retries=0) as model,
    ):
        with pytest.raises(StepError) as failed:
            model.ask(ISSUE)
        texts = [
            failed.value.reason, failed.value.detail, repr(failed.value), repr(model), str(vars(failed.value)),
            "".join(traceback.format_exception(failed.value)), repr(model.where), str(vars(model.where)),
            repr(settings()),
        ]  # fmt: skip
    for text in texts:
        for piece in (KEY, KEY[8:], "b7Nm1", ECHOES["hashed"][-64:]):
            assert piece not in text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "changed",
    [
        {"usage": ["many"]},
        {"choices": "hello"},
        {"choices": [{"message": {"content": None, "tool_calls": [{"function": "ls"}]}}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": "none", "token_ids": [1]}]},
        {"prompt_token_ids": ["first"]},
    ],
)
def test_malformed_json_is_retried(changed: dict[str, object]) -> None:
    body = {"id": "c", "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], **changed}
    with model_server(flaky(lambda _: Fault(200, body), SERVER_ERROR)) as server, client(server.url) as model:
        with pytest.raises(InfraError, match=r"the answer .*, the last of 6 requests") as failure:
            model.ask(ISSUE)
        assert failure.value.failure_class is FailureClass.MODEL
        assert model.usage.requests == server.counts.requests == 6


def test_lenient_answer_shapes_are_read() -> None:
    message = {"content": ["Hel", {"type": "text", "text": "lo"}, None]}
    logprobs = {"content": [{"token": "a", "logprob": None}, {"token": "b", "logprob": -1.0}]}
    choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}
    body = {"id": 17, "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    with model_server(lambda _: Fault(200, body)) as server, client(server.url) as model:
        reply = model.ask(ISSUE)
    assert (reply.text, reply.metrics.logprobs, reply.metrics.prompt_tokens) == ("Hello", None, 3)


def test_malformed_stream_is_retried() -> None:
    odd = Fault(200, 'data: {"choices": ["hello"]}\n\ndata: [DONE]\n\n', {"Content-Type": "text/event-stream"})
    with (
        model_server(lambda _: odd) as server,
        client(server.url, stream=True, num_retries=1) as model,
        pytest.raises(InfraError, match=r"the stream is not a chat completion, the last of 2 requests"),
    ):
        model.ask(ISSUE)
    assert model.usage.requests == server.counts.requests == 2


def test_unencodable_header_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "фирма")
    with client("http://127.0.0.1:9/v1") as model, pytest.raises(ConfigError, match="OPENAI_ORG_ID or OPENAI_PROJECT"):
        model.ask(ISSUE)
