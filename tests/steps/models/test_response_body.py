from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from swe_argo.steps.agents.calls import FunctionCalling, Rules
from swe_argo.steps.contracts.run_spec import LlmSpec, WireProtocol
from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.protocols import WIRES
from swe_argo.steps.models.response_body import ModelResponse, metrics_of, reply_of
from tests.model_server import Fault
from tests.steps.models.model_specs import BOTH, ISSUE, TOOLS, asking


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"path": "/'])
def test_odd_call_is_answered(arguments: str) -> None:
    call = {"id": 7, "function": {"name": "submit", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    response = ModelResponse({"choices": [{"message": message, "finish_reason": "length"}]}, {}, 0.1)
    reply = reply_of(response, metrics_of(response, LlmSpec(), 1))
    assert (reply.calls[0].id, reply.calls[0].arguments) == ("7", arguments)
    assert json.loads(reply.message["tool_calls"][0]["function"]["arguments"]) == {"unreadable": arguments}
    assert [result["tool_call_id"] for result in FunctionCalling(Rules()).answer(reply, ["done"])] == ["7"]


PRICES = LlmSpec(input_cost_per_token=3e-6, output_cost_per_token=15e-6, cached_cost_per_token=3e-7)
BYOK = {"prompt_tokens": 9, "completion_tokens": 1, "is_byok": True}


def metrics(usage: Any, llm: LlmSpec | None = None, **choice: Any) -> Metrics:
    body = {"choices": [{"message": {"content": "x"}} | choice], "usage": usage}
    return metrics_of(ModelResponse(body, {}, 0.1), llm or LlmSpec(), 1)


@pytest.mark.parametrize(
    ("usage", "prompt", "completion", "cached"),
    [
        ({"prompt_tokens": 10, "completion_tokens": "20"}, 10, 20, None),
        ({"prompt_tokens": "120", "completion_tokens": "7.0"}, 120, 7, None),
        (json.dumps({"prompt_tokens": 120, "completion_tokens": 7}), 120, 7, None),
        ({"input_tokens": 120, "output_tokens": 7}, 120, 7, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 50_000}}, 10, None, 10),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 11}, 10, None, 10),
        ({"prompt_tokens": -5, "completion_tokens": "n/a"}, None, None, None),
        ({"prompt_tokens": inf, "completion_tokens": nan}, None, None, None),
        ({"prompt_tokens": 1e30, "completion_tokens": 10**400}, None, None, None),
        ({"prompt_tokens": True, "completion_tokens": [1]}, None, None, None),
    ],
)
def test_usage_forms_are_read(usage: Any, prompt: int | None, completion: int | None, cached: int | None) -> None:
    read = metrics(usage, PRICES)
    assert (read.prompt_tokens, read.completion_tokens, read.cached_tokens) == (prompt, completion, cached)
    assert read.cost_usd is None or read.cost_usd >= 0


@pytest.mark.parametrize("cost", [-3, "nan", nan, inf, 1e30, "free", True, None])
def test_impossible_cost_is_unknown(cost: object) -> None:
    assert metrics({"prompt_tokens": 1, "completion_tokens": 2, "cost": cost}).cost_usd is None
    assert metrics({"prompt_tokens": 1, "completion_tokens": 2, "cost": "0.5"}).cost_usd == 0.5


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (BYOK | {"cost": 0, "cost_details": {"upstream_inference_cost": 0.036}}, 0.036),
        (BYOK | {"cost": 0.002, "cost_details": {"upstream_inference_cost": 0.036}}, 0.038),
        (BYOK | {"cost": 0}, None),
        (BYOK | {"cost": 0, "cost_details": {"upstream_inference_cost": -1}}, None),
        (BYOK | {"is_byok": False, "cost": 0.01, "cost_details": {"upstream_inference_cost": 0.01}}, 0.01),
    ],
)
def test_cost_includes_upstream_bill(usage: dict[str, Any], cost: float | None) -> None:
    assert metrics(usage).cost_usd == (cost if cost is None else pytest.approx(cost))
    for protocol in (WireProtocol.ANTHROPIC, WireProtocol.RESPONSES):
        native = {"content": [], "output": [], "usage": usage}
        chat = WIRES[protocol].completion(native)["usage"]
        assert metrics(chat).cost_usd == (cost if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("bad", [nan, -inf, inf, None, "-Infinity", -1e300, 3.0])
def test_invalid_logprobs_are_unknown(bad: object) -> None:
    entries = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": bad}]
    assert metrics({}, logprobs={"content": entries}).logprobs is None
    assert metrics({}, logprobs={"content": entries[:1]}).logprobs == [-0.1]


@pytest.mark.parametrize("ids", [[1, -2], [1, 2.5], [1, nan], [True], "12"])
def test_invalid_token_ids_are_unknown(ids: object) -> None:
    assert metrics({}, token_ids=ids).completion_token_ids is None
    assert metrics({}, token_ids=[1, 2]).completion_token_ids == [1, 2]
    tokens = [{"token": "token_id:17", "logprob": -0.5}, {"token": "token_id:4", "logprob": -1.0}]
    assert metrics({}, logprobs={"content": tokens}).completion_token_ids == [17, 4]


def test_anthropic_usage_may_be_invalid() -> None:
    usage = {"input_tokens": 7, "cache_read_input_tokens": nan, "cache_creation_input_tokens": "x", "output_tokens": -1}
    chat = WIRES[WireProtocol.ANTHROPIC].completion({"content": [], "usage": usage})
    assert metrics(chat["usage"]).prompt_tokens == 7


# -- answers of other forms, over HTTP


EVENTS = {"Content-Type": "text/event-stream"}


def whole(text: Any = "x", **changed: Any) -> Fault:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **changed}
    return Fault(200, {"id": "c", "object": "chat.completion", "choices": [choice]})


def events(*chunks: dict[str, Any]) -> str:
    """Return those chunks and the end, as server-sent events, every character as it is."""
    return "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


RAW = '{"path": "/", "text": "it\'s"'
UNREAD = {
    "Groq": {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": RAW},
    "Ollama": {"message": f"error parsing tool call: raw='{RAW}', err=unexpected end of JSON input", "code": 500},
    "llama.cpp": {"message": f"Failed to parse input at pos 13: {RAW}", "code": 500},
}


@pytest.mark.parametrize("body", UNREAD.values(), ids=UNREAD.keys())
def test_unread_call_becomes_reply_text(body: dict[str, Any]) -> None:
    faults = [Fault(400 if body["code"] != 500 else 500, {"error": body}), Fault(200, events({"error": body}), EVENTS)]
    with asking(lambda _: faults.pop(), stream=True) as (model, server):
        for number in (1, 2):
            reply = model.ask(ISSUE, tools=TOOLS)
            assert (reply.text, reply.calls) == (RAW, ())
            assert (model.usage.calls, model.usage.requests, server.counts.requests) == (number, number, number)


CALLED = {"name": "ls", "arguments": '{"path": "/"}'}
# fmt: off
ODD = {
    "a function call as OpenAI had it once": whole(message={"content": None, "function_call": CALLED}),
    "the same, streamed": Fault(200, events(
        delta(function_call={"name": "ls", "arguments": ""}), delta(function_call={"arguments": '{"path":'}),
        delta(function_call={"arguments": ' "/"}'}), delta("function_call")), EVENTS),
    "a stream labelled as JSON": Fault(200, ": open\n\n" + events(
        delta(tool_calls=[{"index": 0, "id": "c1", "function": CALLED}]), delta("tool_calls"))),
    "JSON labelled as a stream": Fault(200, json.dumps(
        whole(message={"tool_calls": [{"id": "c1", "function": CALLED}]}).body, indent=1), EVENTS),
    "arguments that are an object": whole(
        message={"tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": {"path": "/"}}}]}),
    "the same, streamed, an object": Fault(200, events(delta("tool_calls", tool_calls=[
        {"index": 0, "id": "c1", "function": {"name": "ls", "arguments": {"path": "/"}}}])), EVENTS),
}
# fmt: on


@BOTH
@pytest.mark.parametrize("fault", ODD.values(), ids=ODD.keys())
def test_odd_call_forms_are_read(fault: Fault, stream: bool) -> None:
    with asking(lambda _: fault, stream=stream) as (model, server):
        reply = model.ask(ISSUE, tools=TOOLS)
        assert server.counts.requests == 1
    (tool_call,) = reply.calls
    assert (tool_call.name, json.loads(tool_call.arguments), bool(tool_call.id)) == ("ls", {"path": "/"}, True)
    function = {"name": "ls", "arguments": tool_call.arguments}
    assert reply.message["tool_calls"][0] == {"id": tool_call.id, "type": "function", "function": function}


def test_lenient_content_is_read() -> None:
    logprobs = {"content": [{"token": "a", "logprob": None}, {"token": "b", "logprob": -1.0}]}
    parts = whole(["Hel", {"type": "text", "text": "lo"}, None], logprobs=logprobs)
    separators = "one\u2028two\u0085three\u000bfour"
    stream = Fault(200, events(delta(content=separators), delta("stop")).replace("\n", "\r\n"), EVENTS)
    faults = [stream, Fault(200, parts.body | {"id": 17, "usage": {"prompt_tokens": 3, "completion_tokens": 2}})]
    with asking(lambda _: faults.pop(), stream=True) as (model, _):
        reply = model.ask(ISSUE)
        assert (reply.text, reply.metrics.logprobs, reply.metrics.prompt_tokens) == ("Hello", None, 3)
        assert model.ask(ISSUE).text == separators
