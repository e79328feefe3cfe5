"""Answers of a shape that some endpoint sends: understood, or asked for again, and every token of them counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, ForeignAnswerError, InfraError
from swe_argo.steps.models.client import Client
from swe_argo.steps.models.reply import Message, NoReplyError
from tests.model_server import Answer, Fault, Script, call, flaky, model_server, play, rate_limited
from tests.model_server.answers import DRIP, NO_CHOICES, SERVER_ERROR, UNKNOWN_MODEL, error
from tests.model_server.serving import Counts
from tests.steps.models.model_specs import ISSUE, TOOLS, client

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EVENTS = {"Content-Type": "text/event-stream"}
LATER: list[Message] = [*ISSUE, {"role": "assistant", "content": "I look."}, {"role": "user", "content": "There is x."}]


def assert_totals(model: Client, counts: Counts) -> None:
    """What the client counted is what the server did."""
    usage = model.usage
    assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)


def completion(**changed: Any) -> dict[str, Any]:
    """The body of a chat completion that says x, but for what is changed of its choice."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", **changed}
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


def streamed(*chunks: dict[str, Any]) -> str:
    """Those chunks and the end, as server-sent events, every character as it is."""
    return "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


# -- nothing in it


@BOTH
def test_missing_choice_is_retried(stream: bool) -> None:
    script = flaky(play(Answer("x")), NO_CHOICES, rate_limited(), NO_CHOICES)
    with model_server(script) as server, client(server.url, stream=stream) as model:
        assert model.ask(ISSUE).text == "x"
        assert server.counts.calls == 3
        assert_totals(model, server.counts)


@BOTH
def test_no_choices_is_endpoint_failure(stream: bool) -> None:
    prices = {"input_cost_per_token": 1.0, "output_cost_per_token": 1.0}
    with model_server(play(NO_CHOICES)) as server, client(server.url, stream=stream, num_retries=2, **prices) as model:
        with pytest.raises(InfraError, match="the answer has no choices, the last of 3 requests") as failure:
            model.ask(ISSUE)
        assert failure.value.failure_class is FailureClass.MODEL
        assert_totals(model, server.counts)
        assert model.usage.cost_usd == server.counts.prompt_tokens > 0


def test_filtered_answer_may_be_empty() -> None:
    body = completion(message=None, finish_reason="content_filter")
    with model_server(lambda _: Fault(200, body)) as server, client(server.url) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is StopReason.CONTENT_FILTER
        assert server.counts.requests == 1


# -- too long


ROOMLESS = {
    "LMDeploy": Answer("", finish_reason="length", completion_tokens=0),
    "LMDeploy, in words": Answer("run out of tokens", finish_reason="length", completion_tokens=0),
    "Z.ai": Answer("", finish_reason="model_context_window_exceeded"),
}


@BOTH
@pytest.mark.parametrize("answer", ROOMLESS.values(), ids=ROOMLESS.keys())
def test_no_room_for_a_token_is_overflow(answer: Answer, stream: bool) -> None:
    with model_server(play(answer)) as server, client(server.url, stream=stream) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is StopReason.CONTEXT_OVERFLOW
        assert_totals(model, server.counts)


OVERFLOWS = {
    "500": Fault(500, {"error": {"message": "This model's maximum context length is 8192 tokens.", "code": 500}}),
    "in a 200": Fault(200, {"error": {"message": "prompt is too long", "type": "invalid_request_error"}}),
    "in a 200, by its code": Fault(200, {"error": {"message": "no", "code": "context_length_exceeded"}}),
    "in the stream": Fault(
        200, 'data: {"error": {"message": "Prompt exceeds max length", "code": "1261"}}\n\n', EVENTS
    ),
    "LMDeploy's failure": Fault(
        200,
        completion(
            message={"content": "internal error happened, status code ResponseType.INPUT_LENGTH_ERROR"},
            finish_reason="error",
        ),
    ),
}


@pytest.mark.parametrize("fault", OVERFLOWS.values(), ids=OVERFLOWS.keys())
def test_odd_overflow_is_recognized(fault: Fault) -> None:
    with model_server(play(fault)) as server, client(server.url) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is StopReason.CONTEXT_OVERFLOW
        assert server.counts.requests == 1


def test_text_about_overflow_is_no_error() -> None:
    text = "internal: maximum context length is 8192 tokens, prompt is too long"
    with model_server(play(Answer(text))) as server, client(server.url) as model:
        assert model.ask(ISSUE).text == text


# -- refused late


UNTOLD = error(400, "Invalid 'messages[2].content'", "invalid_value", "invalid_request_error")


def late(fault: Fault) -> Script:
    """Only a conversation that goes on is refused."""
    return lambda request: fault if len(request["messages"]) > 1 else Answer("x")


LATE = {
    "words that tell nothing": UNTOLD,
    "a parameter that it took before": error(400, "tools: unsupported", None, "", "tools"),
    "tools that it took before": error(400, "tool calling is not supported"),
    "403 in words that tell nothing": error(403, "Blocked by guardrail 7"),
}


@BOTH
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE.keys())
def test_refusal_blames_the_conversation(fault: Fault, stream: bool) -> None:
    with model_server(late(fault)) as server, client(server.url, stream=stream, num_retries=0) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(LATER, tools=TOOLS)
        assert ended.value.reason is StopReason.REQUEST_REFUSED
        assert ended.value.detail == fault.body["error"]["message"]
        first, small, again = [request.body for request in server.calls]
    assert first == again
    assert "report_word" in str(small)
    assert small["max_tokens"] == 1024
    assert model.usage.requests == 3


def calling(arguments: str, answers: str = "c1") -> list[Message]:
    called = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": answers, "content": "a.py"}
    return [*ISSUE, {"role": "assistant", "content": "", "tool_calls": [called]}, *([answer] if answers else [])]


FORMS = {
    "whole": (calling("{}"), ""),
    "arguments": (
        calling("{"),
        "our check finds the request malformed (the arguments of a call are not a JSON object)",
    ),
    "no answer": (calling("{}", ""), "our check finds the request malformed (a call has no answer)"),
    "no call": (calling("{}", "c2"), "our check finds the request malformed (a tool message answers no call)"),
}


@pytest.mark.parametrize(("messages", "diagnosis"), FORMS.values(), ids=FORMS.keys())
def test_refusal_reports_bad_request(messages: list[Message], diagnosis: str) -> None:
    with model_server(late(UNTOLD)) as server, client(server.url) as model, pytest.raises(NoReplyError) as ended:
        model.ask(messages, tools=TOOLS)
    assert ended.value.detail == (f"{diagnosis}; the endpoint: " if diagnosis else "") + "Invalid 'messages[2].content'"


@pytest.mark.parametrize("fault", LATE.values(), ids=LATE.keys())
def test_refusal_may_pass_on_retry(fault: Fault) -> None:
    met = [fault]
    with model_server(lambda _: met.pop() if met else Answer("x")) as server, client(server.url) as model:
        assert model.ask(LATER, tools=TOOLS).text == "x"
        assert server.counts.requests == 3


def test_refusal_is_retried_on_outage() -> None:
    met = [UNTOLD, SERVER_ERROR]
    with model_server(lambda _: met.pop(0) if met else Answer("x")) as server, client(server.url) as model:
        assert model.ask(LATER).text == "x"
        assert server.counts.requests == 3


XAI = {
    "code": "The caller does not have permission to execute the specified operation",
    "error": "Your team has either used all available credits or reached its monthly spending limit.",
}
QUOTAS = {
    "Anthropic": (error(400, "You have reached your specified API usage limits. You will regain access on ...",
                        None, "invalid_request_error"), 2),
    "DashScope": (error(400, "Access denied, please make sure your account is in good standing.", "Arrearage",
                        "Arrearage"), 2),
    "words of nobody": (error(422, "computer says no"), 2),
    "403": (error(403, "computer says no"), 2),
    "xAI": (Fault(429, XAI), 4),
}  # fmt: skip


@pytest.mark.parametrize("messages", [ISSUE, LATER], ids=["first", "later"])
@pytest.mark.parametrize(("fault", "requests"), QUOTAS.values(), ids=QUOTAS.keys())
def test_refused_probe_means_no_access(fault: Fault, requests: int, messages: list[Message]) -> None:
    with model_server(play(fault)) as server, client(server.url, num_retries=2) as model:
        with pytest.raises(ConfigError, match="denied access") as failed:
            model.ask(messages)
        assert server.counts.requests == model.usage.requests == requests
    assert failed.value.failure_class is FailureClass.MODEL_ACCESS


WAITS = {
    "rate limit": rate_limited(),
    "no words": Fault(429, ""),
    "overloaded": error(429, "The engine is currently overloaded, please try again later", None, "engine_overloaded"),
    "capacity": error(429, "Service tier capacity exceeded for this model.", "3505"),
    "a day's tokens": error(429, "Tokens per day limit exceeded - too many tokens processed.", "token_quota_exceeded"),
    "a header alone": Fault(429, XAI, {"Retry-After": "0"}),
}


@pytest.mark.parametrize("fault", WAITS.values(), ids=WAITS.keys())
def test_rate_limit_is_no_access_refusal(fault: Fault) -> None:
    with model_server(play(fault)) as server, client(server.url, num_retries=1) as model:
        with pytest.raises(InfraError, match="the last of 2 requests"):
            model.ask(LATER)
        assert server.counts.requests == 2


def test_429_of_one_prompt_is_infra() -> None:
    with model_server(late(Fault(429, XAI))) as server, client(server.url, num_retries=0) as model:
        with pytest.raises(InfraError):
            model.ask(LATER)
        assert server.counts.requests == 2


HTML = {"Content-Type": "text/html"}
FOREIGN = {
    "firewall": Fault(403, "<!DOCTYPE html><title>Attention Required! | Cloudflare</title>", HTML),
    "firewall in words of a filter": Fault(403, "<html>Your request was flagged by policy</html>", HTML),
    "400 page": Fault(400, "<html>prompt is too long</html>", HTML),
    "plain text": Fault(403, "Forbidden"),
    "no body": Fault(400, ""),
    "login page": Fault(200, "<html>Sign in</html>", HTML),
}


@pytest.mark.parametrize("messages", [ISSUE, LATER], ids=["first", "later"])
@pytest.mark.parametrize("fault", FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_body_is_infra_failure(fault: Fault, messages: list[Message]) -> None:
    with model_server(play(fault)) as server, client(server.url, num_retries=1) as model:
        with pytest.raises(ForeignAnswerError, match=r"2 requests; the response is not JSON: check for a fire") as met:
            model.ask(messages)
        assert server.counts.requests == 2
    assert (met.value.failure_class, met.value.exit_code) == (FailureClass.MODEL, 75)


def test_vanished_model_is_infra_failure() -> None:
    with model_server(flaky(play(Answer("x")), UNKNOWN_MODEL)) as server, client(server.url) as model:
        assert model.ask(LATER).text == "x"
    with model_server(play(UNKNOWN_MODEL)) as server, client(server.url, num_retries=2) as model:
        with pytest.raises(InfraError, match="the last of 3 requests"):
            model.ask(LATER)
        assert server.counts.requests == 3


# -- too large for a minute


def test_request_over_tpm_is_retried() -> None:
    message = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000"
    limited = Fault(413, {"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}})
    with model_server(flaky(play(Answer("x")), limited)) as server, client(server.url) as model:
        assert model.ask(LATER).text == "x"
        assert model.usage.requests == server.counts.requests == 2


# -- without an end


def test_dripping_answer_is_retried() -> None:
    with model_server(flaky(play(call("ls")), DRIP)) as server, client(server.url, stream=True, timeout=2) as model:
        assert model.ask(ISSUE).calls[0].name == "ls"
        assert model.usage.requests == server.counts.requests == 2
        assert model.lost_s >= 1.5, "the time of the answer that was none is not the agent's"


def test_repeated_drip_is_call_timeout() -> None:
    with model_server(play(DRIP)) as server, client(server.url, stream=True, timeout=1, num_retries=2) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE)
        assert ended.value.reason is StopReason.CALL_TIMEOUT
        assert server.counts.requests == 3


def test_drip_to_deadline_is_timeout() -> None:
    with model_server(play(DRIP)) as server, client(server.url, stream=True) as model:
        with pytest.raises(NoReplyError) as ended:
            model.ask(ISSUE, timeout_s=2)
        assert ended.value.reason is StopReason.CALL_TIMEOUT
        assert server.counts.requests == 1


def test_endless_whitespace_is_silence() -> None:
    with model_server(play(DRIP)) as server, client(server.url, timeout=1, num_retries=1) as model:
        with pytest.raises(InfraError, match="no complete answer within the call's timeout"):
            model.ask(ISSUE)
        assert server.counts.requests == 2


# -- a call that the server could not read


RAW = '{"path": "/", "text": "it\'s"'
UNREAD = {
    "Ollama": f"error parsing tool call: raw='{RAW}', err=unexpected end of JSON input",
    "llama.cpp": f"Failed to parse input at pos 13: {RAW}",
}


@pytest.mark.parametrize("how", ["500", "in the stream"])
@pytest.mark.parametrize("words", UNREAD.values(), ids=UNREAD.keys())
def test_unread_call_becomes_reply_text(words: str, how: str) -> None:
    body = {"error": {"code": 500, "message": words, "type": "server_error"}}
    fault = Fault(500, body) if how == "500" else Fault(200, streamed(body), EVENTS)
    with model_server(play(fault)) as server, client(server.url, stream=True) as model:
        reply = model.ask(ISSUE, tools=TOOLS)
        assert (reply.text, reply.calls) == (RAW, ())
        assert model.usage.requests == server.counts.requests == 1


# -- other shapes


CALLED = {"name": "ls", "arguments": '{"path": "/"}'}
ODD = {
    "a function call as OpenAI had it once": Fault(
        200, completion(message={"content": None, "function_call": CALLED}, finish_reason="function_call")
    ),
    "the same, streamed": Fault(
        200,
        streamed(
            delta(function_call={"name": "ls", "arguments": ""}),
            delta(function_call={"arguments": '{"path":'}),
            delta(function_call={"arguments": ' "/"}'}),
            delta("function_call"),
        ),
        EVENTS,
    ),
    "a stream labelled as JSON": Fault(
        200,
        ": open\n\n" + streamed(delta(tool_calls=[{"index": 0, "id": "c1", "function": CALLED}]), delta("tool_calls")),
    ),
    "JSON labelled as a stream": Fault(
        200,
        json.dumps(completion(message={"tool_calls": [{"id": "c1", "function": CALLED}]}), indent=1),
        EVENTS,
    ),
    "arguments that are an object": Fault(
        200, completion(message={"tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": {"path": "/"}}}]})
    ),
}


@BOTH
@pytest.mark.parametrize("fault", ODD.values(), ids=ODD.keys())
def test_odd_call_forms_are_read(fault: Fault, stream: bool) -> None:
    with model_server(lambda _: fault) as server, client(server.url, stream=stream) as model:
        reply = model.ask(ISSUE, tools=TOOLS)
        assert server.counts.requests == 1
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [("ls", {"path": "/"})]
    assert reply.calls[0].id
    assert reply.message["tool_calls"][0] == {
        "id": reply.calls[0].id,
        "type": "function",
        "function": {"name": "ls", "arguments": reply.calls[0].arguments},
    }


USAGES: dict[str, Any] = {
    "numbers as text": {"prompt_tokens": "120", "completion_tokens": "7.0", "cost": "0.5"},
    "all of it as text": json.dumps({"prompt_tokens": 120, "completion_tokens": 7, "cost": 0.5}),
    "the other interface's names": {"input_tokens": 120, "output_tokens": 7, "cost": 0.5},
}


@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES.keys())
def test_odd_usage_forms_are_read(usage: Any) -> None:
    with model_server(lambda _: Fault(200, completion() | {"usage": usage})) as server, client(server.url) as model:
        model.ask(ISSUE)
        assert (model.usage.prompt_tokens, model.usage.completion_tokens, model.usage.cost_usd) == (120, 7, 0.5)


def test_unicode_line_ends_stay_in_event() -> None:
    text = "one\u2028two\u0085three\u000bfour"
    fault = Fault(200, streamed(delta(content=text), delta("stop")).replace("\n", "\r\n"), EVENTS)
    with model_server(lambda _: fault) as server, client(server.url, stream=True) as model:
        assert model.ask(ISSUE).text == text


def test_usage_counts_every_odd_answer() -> None:
    script = flaky(play(call("ls"), Answer("done")), SERVER_ERROR, NO_CHOICES, DRIP)
    with model_server(script) as server, client(server.url, stream=True, timeout=2) as model:
        reply = model.ask(ISSUE)
        model.ask([*ISSUE, reply.message, {"role": "tool", "tool_call_id": reply.calls[0].id, "content": "x"}])
        assert server.counts.requests == 8
        assert_totals(model, server.counts)
