"""Faults of model endpoints: which are retried, which end the conversation, and which are the user's to fix."""

from __future__ import annotations

import hashlib
import logging
import socket
import time
import traceback
from dataclasses import replace
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, ForeignAnswerError, InfraError, StepError
from swe_argo.steps.models.client import Client
from swe_argo.steps.models.reply import Message, NoReplyError
from swe_argo.steps.settings import settings
from tests.model_server import Answer, Counts, Fault, Script, answers, call, flaky, model_server, play, rate_limited
from tests.model_server.answers import error
from tests.steps.models.model_specs import BOTH, ISSUE, LATER, TOOLS, asking, client

EVENTS, HTML = {"Content-Type": "text/event-stream"}, {"Content-Type": "text/html"}
XAI = {"code": "The caller does not have permission to execute the specified operation",
       "error": "Your team has either used all available credits or reached its monthly spending limit."}  # fmt: skip


def assert_totals(model: Client, counts: Counts) -> None:
    usage = model.usage
    assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
    assert usage.reasoning_tokens == counts.reasoning_tokens


def whole(text: Any = "x", finish: str = "stop", **changed: Any) -> Fault:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish, **changed}
    return Fault(200, {"id": "c", "object": "chat.completion", "choices": [choice]})


def choices(value: Any, **fields: Any) -> Fault:
    return Fault(200, {"id": "c", "choices": value, **fields})


# fmt: off
FOREIGN = {
    "firewall": Fault(403, "<!DOCTYPE html><title>Attention Required! | Cloudflare</title>", HTML),
    "firewall in words of a filter": Fault(403, "<html>Your request was flagged by policy</html>", HTML),
    "400 page": Fault(400, "<html>prompt is too long</html>", HTML),
    "plain text": Fault(403, "Forbidden"),
    "no body": Fault(400, ""),
    "login page": Fault(200, "<html>Sign in</html>", HTML),
}
X: list[Any] = [{"message": {"content": "x"}, "finish_reason": "stop"}]
TRANSIENT = FOREIGN | {
    "429": rate_limited(),
    "429 without words": Fault(429, ""),
    "overloaded": error(429, "The engine is currently overloaded, please try again later", None, "engine_overloaded"),
    "capacity": error(429, "Service tier capacity exceeded for this model.", "3505"),
    "a day's tokens": error(429, "Tokens per day limit exceeded - too many tokens processed.", "token_quota_exceeded"),
    "a header alone": Fault(429, XAI, {"Retry-After": "0"}),
    "a minute's tokens": error(413, "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested "
                                    "7000", "rate_limit_exceeded", "tokens"),
    "500": answers.SERVER_ERROR, "502": answers.BAD_GATEWAY, "503": answers.UNAVAILABLE,
    "dropped": answers.DROP, "truncated": answers.TRUNCATED, "in the stream": answers.STREAM_ERROR,
    "404 of a proxy": Fault(404, "default backend - 404", {"Content-Type": "text/plain"}),
    "200 with an error": Fault(200, {"error": {"message": "provider overloaded", "code": 502}}),
    "200 with an error and no message": Fault(200, {"error": "overloaded", "choices": [{"message": "none"}]}),
    "200 that is no JSON": Fault(200, "<html>"),
    "200 nested too deeply": Fault(200, "[" * 100_000),
    "200 with null": Fault(200, "null"),
    "no choices": choices([]), "choices that are null": choices(None), "choices that are text": choices("hello"),
    "no field choices": Fault(200, {"id": "c", "object": "chat.completion"}),
    "choice that is null": choices([None]),
    "no message": choices([{"index": 0, "finish_reason": "stop"}]),
    "message that is null": choices([{"message": None, "finish_reason": "stop"}]),
    "message that is text": choices([{"message": "hello", "finish_reason": "stop"}]),
    "call that is text": choices([{"message": {"content": None, "tool_calls": [{"function": "ls"}]}}]),
    "logprobs that are text": choices([{"message": {"content": "x"}, "logprobs": "none", "token_ids": [1]}]),
    "usage that is a list": choices(X, usage=["many"]),
    "prompt ids that are text": choices(X, prompt_token_ids=["first"]),
    "stream of text": Fault(200, 'data: {"choices": ["hello"]}\n\ndata: [DONE]\n\n', EVENTS),
    "OpenRouter's provider": whole("half", "error", error={"code": 502, "message": "provider disconnected"}),
    "vLLM that stops": whole("I", "abort"),
}
"""Faults that may pass: InfraError when the retries are used up."""
ENDS: dict[str, tuple[Fault | Answer, StopReason]] = {
    "OpenAI": (answers.CONTEXT_OPENAI, StopReason.CONTEXT_OVERFLOW),
    "vLLM": (answers.CONTEXT_VLLM, StopReason.CONTEXT_OVERFLOW),
    "500": (Fault(500, {"error": {"message": "This model's maximum context length is 8192 tokens.", "code": 500}}),
            StopReason.CONTEXT_OVERFLOW),
    "in a 200": (Fault(200, {"error": {"message": "prompt is too long", "type": "invalid_request_error"}}),
                 StopReason.CONTEXT_OVERFLOW),
    "in a 200, by its code": (Fault(200, {"error": {"message": "no", "code": "context_length_exceeded"}}),
                              StopReason.CONTEXT_OVERFLOW),
    "in the stream": (Fault(200, 'data: {"error": {"message": "Prompt exceeds max length", "code": "1261"}}\n\n',
                            EVENTS), StopReason.CONTEXT_OVERFLOW),
    "LMDeploy's failure": (whole("internal error happened, status code ResponseType.INPUT_LENGTH_ERROR", "error"),
                           StopReason.CONTEXT_OVERFLOW),
    "LMDeploy": (Answer("", finish_reason="length", completion_tokens=0), StopReason.CONTEXT_OVERFLOW),
    "LMDeploy, in words": (Answer("run out of tokens", finish_reason="length", completion_tokens=0),
                           StopReason.CONTEXT_OVERFLOW),
    "Z.ai": (Answer("", finish_reason="model_context_window_exceeded"), StopReason.CONTEXT_OVERFLOW),
    "Azure's filter": (answers.CONTENT_FILTER_AZURE, StopReason.CONTENT_FILTER),
    "filtered": (answers.FILTERED, StopReason.CONTENT_FILTER),
    "filtered, no message": (whole(None, "content_filter", message=None), StopReason.CONTENT_FILTER),
    "refusal": (answers.REFUSAL, StopReason.REFUSAL),
}
"""Answers that end the conversation: NoReplyError at once."""
ACCESS: dict[str, tuple[Fault, int]] = {
    "401": (answers.BAD_KEY, 1), "402": (answers.NO_CREDIT, 1), "insufficient_quota": (answers.NO_QUOTA, 1),
    "Anthropic": (error(400, "You have reached your specified API usage limits. You will regain access on ...",
                        None, "invalid_request_error"), 2),
    "DashScope": (error(400, "Access denied, please make sure your account is in good standing.", "Arrearage",
                        "Arrearage"), 2),
    "unknown words": (error(422, "computer says no"), 2),
    "403": (error(403, "computer says no"), 2),
    "xAI": (Fault(429, XAI), 4),
}
"""Refusals of any request, and the requests that show it (with 2 retries): the small test request is the second."""
FIELDS: list[tuple[str, Fault, dict[str, Any]]] = [
    ("agent.use_fn_calling", answers.TOOLS_REFUSED_VLLM, {}),
    ("agent.model", answers.UNKNOWN_MODEL, {}),
    ("llm.base_url", Fault(404, {"detail": "Not Found"}), {}),
    ("llm.seed", error(400, "Unsupported parameter: 'seed'", "unsupported_parameter", "", "seed"), {"seed": 1}),
    ("llm.top_p", error(400, "top_p is not supported here"), {"top_p": 0.5}),
    ("llm.max_output_tokens", error(400, "max_tokens is too large: 9", None, "", "max_tokens"),
     {"max_output_tokens": 9}),
    ("llm.extra_body.x", error(400, "Unknown parameter: 'x'", None, "", "x"), {"extra_body": {"x": 1}}),
    ("llm.temperature", error(400, "temperature must be at most 1"), {"temperature": 2.0}),
]
"""Field of the spec, and the refusal that is its fault."""
UNTOLD = error(400, "Invalid 'messages[2].content'", "invalid_value", "invalid_request_error")
LATE = {
    "words that tell nothing": UNTOLD,
    "a parameter that it took before": error(400, "tools: unsupported", None, "", "tools"),
    "tools that it took before": error(400, "tool calling is not supported"),
    "403 in words that tell nothing": error(403, "Blocked by guardrail 7"),
}
"""Refusals of a conversation that the endpoint took before."""
# fmt: on


@BOTH
@pytest.mark.parametrize("name", TRANSIENT)
def test_transient_fault_is_retried(name: str, stream: bool) -> None:
    fault = TRANSIENT[name]
    with asking(flaky(play(Answer("x")), fault), stream=stream, num_retries=1) as (model, server):
        reply = model.ask(ISSUE)
        assert (reply.text, reply.metrics.extra and reply.metrics.extra.requests) == ("x", 2)
        assert model.usage.prompt_tokens == server.counts.prompt_tokens
        server.script = play(fault)
        for messages in (ISSUE, LATER):
            with pytest.raises(InfraError, match=r"the last of 2 requests") as failed:
                model.ask(messages)
            assert failed.value.failure_class is FailureClass.MODEL
            assert server.url in failed.value.reason
        assert model.usage.requests == server.counts.requests == 6
    if name in FOREIGN:
        assert isinstance(failed.value, ForeignAnswerError)
        assert failed.value.exit_code == 75
        assert "2 requests; the response is not JSON: check for a firewall" in failed.value.reason


@BOTH
@pytest.mark.parametrize(("fault", "reason"), ENDS.values(), ids=ENDS.keys())
def test_ended_conversation_is_outcome(fault: Fault | Answer, reason: StopReason, stream: bool) -> None:
    with asking(play(fault), stream=stream) as (model, server):
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is reason
        assert server.counts.requests == model.usage.requests == 1
        if isinstance(fault, Answer):
            assert ended.value.metrics is not None
            assert_totals(model, server.counts)


@pytest.mark.parametrize(("fault", "requests"), ACCESS.values(), ids=ACCESS.keys())
def test_lost_access_is_config_error(fault: Fault, requests: int) -> None:
    with asking(play(fault), num_retries=2) as (model, server):
        for messages in (ISSUE, LATER):
            with pytest.raises(ConfigError, match=r"denied access|requires an API key") as failed:
                model.ask(messages)
            assert failed.value.failure_class is FailureClass.MODEL_ACCESS
        assert server.counts.requests == model.usage.requests == 2 * requests


@pytest.mark.parametrize(("field", "fault", "fields"), FIELDS, ids=[field for field, *_ in FIELDS])
def test_wrong_request_names_the_field(field: str, fault: Fault, fields: dict[str, Any]) -> None:
    with asking(play(fault), **fields) as (model, server):
        with pytest.raises(ConfigError) as failed:
            model.ask(ISSUE, tools=TOOLS)
        assert (failed.value.field, failed.value.failure_class) == (field, FailureClass.CONFIG)
        assert "\n" not in failed.value.reason
        assert server.counts.requests == 1


def test_text_about_overflow_is_no_error() -> None:
    text = "internal: maximum context length is 8192 tokens, prompt is too long"
    with asking(play(Answer(text))) as (model, _):
        assert model.ask(ISSUE).text == text


@BOTH
def test_every_answer_is_billed(stream: bool) -> None:
    prices = {"input_cost_per_token": 1.0, "output_cost_per_token": 1.0}
    faults: list[Fault | Answer] = [answers.SERVER_ERROR, answers.NO_CHOICES, rate_limited(), answers.NO_CHOICES]
    script = flaky(play(replace(call("ls"), reasoning="so"), answers.EMPTY), *faults)
    with asking(script, stream=stream, num_retries=4, **prices) as (model, server):
        reply = model.ask(ISSUE)
        result = {"role": "tool", "tool_call_id": reply.calls[0].id, "content": "x"}
        empty = model.ask([*ISSUE, reply.message, result])
        assert (empty.text, empty.calls, empty.message["content"]) == ("", (), "")
        assert (server.counts.requests, server.counts.calls, bool(server.counts.reasoning_tokens)) == (10, 6, True)
        server.script = play(answers.NO_CHOICES)
        with pytest.raises(InfraError, match="the answer has no choices, the last of 5 requests"):
            model.ask(ISSUE)
        assert_totals(model, server.counts)
        assert model.usage.cost_usd == server.counts.prompt_tokens + server.counts.completion_tokens


# -- refused late


def late(fault: Fault) -> Script:
    return lambda request: fault if len(request["messages"]) > 1 else Answer("x")


@BOTH
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE.keys())
def test_refusal_blames_the_conversation(fault: Fault, stream: bool) -> None:
    with asking(late(fault), stream=stream, num_retries=0) as (model, server):
        with pytest.raises(NoReplyError) as ended:
            model.ask(LATER, tools=TOOLS)
        assert (ended.value.reason, ended.value.detail) == (StopReason.REQUEST_REFUSED, fault.body["error"]["message"])
        first, small, again = [request.body for request in server.calls]
        assert model.usage.requests == 3
    assert first == again
    assert "report_word" in str(small)
    assert small["max_tokens"] == 1024


@pytest.mark.parametrize(
    "faults", [*([fault] for fault in LATE.values()), [UNTOLD, answers.SERVER_ERROR]], ids=[*LATE, "outage"]
)
def test_refusal_may_pass_on_retry(faults: list[Fault]) -> None:
    met = list(faults)
    with asking(lambda _: met.pop(0) if met else Answer("x")) as (model, server):
        assert model.ask(LATER, tools=TOOLS).text == "x"
        assert server.counts.requests == 3


def calling(arguments: str, answered: str = "c1") -> list[Message]:
    called = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": answered, "content": "a.py"}
    return [*ISSUE, {"role": "assistant", "content": "", "tool_calls": [called]}, *([answer] if answered else [])]


@pytest.mark.parametrize(
    ("messages", "diagnosis"),
    [
        (calling("{}"), ""),
        (calling("{"), "the arguments of a call are not a JSON object"),
        (calling("{}", ""), "a call has no answer"),
        (calling("{}", "c2"), "a tool message answers no call"),
    ],
)
def test_refusal_reports_bad_request(messages: list[Message], diagnosis: str) -> None:
    with asking(late(UNTOLD)) as (model, _), pytest.raises(NoReplyError) as ended:
        model.ask(messages, tools=TOOLS)
    check = f"our check finds the request malformed ({diagnosis}); the endpoint: " if diagnosis else ""
    assert ended.value.detail == f"{check}Invalid 'messages[2].content'"


def test_429_of_one_prompt_is_infra() -> None:
    with asking(late(Fault(429, XAI)), num_retries=0) as (model, server):
        with pytest.raises(InfraError):
            model.ask(LATER)
        assert server.counts.requests == 2


def test_vanished_model_is_infra_failure() -> None:
    with asking(flaky(play(Answer("x")), answers.UNKNOWN_MODEL), num_retries=1) as (model, server):
        assert model.ask(LATER).text == "x"
        server.script = play(answers.UNKNOWN_MODEL)
        with pytest.raises(InfraError, match="the last of 2 requests"):
            model.ask(LATER)


# -- silence, and answers without an end


def test_silence_is_retried() -> None:
    with asking(play(answers.HANG), timeout=1, num_retries=1) as (model, server):
        with pytest.raises(InfraError, match="no answer within"):
            model.ask(ISSUE, timeout_s=60)
        assert server.counts.requests == 2


@pytest.mark.parametrize(
    ("script", "stream", "requests", "fields"),
    [
        (play(answers.HANG), False, 1, {}),
        (play(answers.DRIP), True, 1, {}),
        (play(answers.DRIP), True, 3, {"timeout": 1, "num_retries": 2}),
    ],
    ids=["silence", "drip", "drips"],
)
def test_call_timeout_is_agents_outcome(script: Script, stream: bool, requests: int, fields: dict[str, Any]) -> None:
    with asking(script, stream=stream, **fields) as (model, server):
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE, timeout_s=None if fields else 1)
        assert ended.value.reason is StopReason.CALL_TIMEOUT
        assert model.usage.requests == server.counts.requests == requests


def test_fault_time_is_not_the_agents() -> None:
    with asking(flaky(play(answers.HANG), answers.SERVER_ERROR)) as (model, server):
        with pytest.raises(InfraError):
            model.ask(ISSUE, timeout_s=1)
        assert server.counts.requests == 2


def test_dripping_answer_is_retried() -> None:
    script = flaky(play(call("ls")), answers.DRIP)
    with asking(script, stream=True, timeout=1) as (model, server):
        assert model.ask(ISSUE).calls[0].name == "ls"
        assert_totals(model, server.counts)
        assert model.usage.requests == 2
        assert model.lost_s >= 0.9, "the time of the unfinished answer is not the agent's"


def test_endless_whitespace_is_silence() -> None:
    with asking(play(answers.DRIP), timeout=1, num_retries=1) as (model, server):
        with pytest.raises(InfraError, match="no complete answer within the call's timeout"):
            model.ask(ISSUE)
        assert server.counts.requests == 2


def test_retry_after_is_waited_for() -> None:
    with asking(flaky(play(Answer("x")), rate_limited(0.6))) as (model, _):
        began = time.monotonic()
        model.ask(ISSUE)
        assert time.monotonic() - began >= 0.6


@pytest.mark.timeout(60)  # so it does not wait until the time is over, either
def test_wait_beyond_deadline_is_skipped() -> None:
    with asking(play(rate_limited(110))) as (model, server):
        with pytest.raises(InfraError, match="429"):
            model.ask(ISSUE, timeout_s=100)
        assert server.counts.requests == 1


# -- endpoints that cannot be reached, and what is printed of them


def test_unreachable_endpoint_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        url = f"http://127.0.0.1:{line.getsockname()[1]}/v1"
    unknown = "http://nowhere.invalid/v1"
    for address, problem in ((url, "refuses connections"), (unknown, "is on a host whose name cannot be resolved")):
        with client(address, num_retries=1) as model:
            with pytest.raises(InfraError, match=f"the model endpoint at {address} {problem}"):
                model.ask(ISSUE)
            assert model.usage.requests == 0  # none was sent


def test_unencodable_header_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "фирма")
    with client("http://127.0.0.1:9/v1") as model, pytest.raises(ConfigError, match="OPENAI_ORG_ID or OPENAI_PROJECT"):
        model.ask(ISSUE)


KEY = "sk-proj-Zq8Rt6Yw2Lk9Xc4Vb7Nm1"
HASH = hashlib.sha256(KEY.encode()).hexdigest()
ECHOES = {
    "whole": f"Incorrect API key provided: {KEY}",
    "masked": "Incorrect API key provided: sk-proj-********************b7Nm1",
    "dotted": "Received API Key = sk-...7Nm1",
    "half": f"bad key {KEY[:14]}",
    "hashed": f"Key Hash (Token) ={HASH}",
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
def test_echoed_key_is_redacted(echo: str, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    environment.setenv("OPENAI_API_KEY", KEY)
    settings.cache_clear()
    caplog.set_level(logging.DEBUG)
    with model_server(play(answers.SERVER_ERROR), key=KEY) as server, client(server.url, num_retries=0) as model:
        texts = [repr(model), repr(model.resolved_endpoint), str(vars(model.resolved_endpoint)), repr(settings())]
        for status in (401, 400, 500):
            server.script = play(error(status, echo))
            with pytest.raises(StepError) as failed:
                model.ask(ISSUE)
            echoed = failed.value
            texts += [
                echoed.reason,
                echoed.detail,
                repr(echoed),
                str(vars(echoed)),
                *traceback.format_exception(echoed),
            ]
    for piece in (KEY, KEY[8:], "b7Nm1", HASH):
        assert not [text for text in texts if piece in text]
    assert KEY not in caplog.text
