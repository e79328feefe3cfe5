from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from swe_argo.steps.agents.calls import call_format
from swe_argo.steps.agents.calls.parse_result import Rules
from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.protocols.table import WIRES
from swe_argo.steps.models.response_body import ModelResponse, metrics_of, reply_of


def test_deep_arguments_are_wrapped() -> None:
    function = {"name": "execute_bash", "arguments": "[" * 100_000}
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}
    answered = ModelResponse({"choices": [{"message": message, "finish_reason": "length"}]}, {}, 0.1)
    reply = reply_of(answered, metrics_of(answered, LlmSpec(), 1))
    assert reply.calls[0].arguments == function["arguments"]
    assert json.loads(reply.message["tool_calls"][0]["function"]["arguments"]) == {"unreadable": function["arguments"]}


def test_numeric_call_id_becomes_text() -> None:
    call = {"id": 7, "type": "function", "function": {"name": "submit", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = ModelResponse({"choices": [{"message": message, "finish_reason": "tool_calls"}]}, {}, 0.1)
    reply = reply_of(answered, metrics_of(answered, LlmSpec(), 1))
    assert reply.calls[0].id == "7"
    assert [result["tool_call_id"] for result in call_format(True, Rules()).answer(reply, ["done"])] == ["7"]


PRICES = LlmSpec(input_cost_per_token=3e-6, output_cost_per_token=15e-6, cached_cost_per_token=3e-7)
BYOK = {"prompt_tokens": 9, "completion_tokens": 1, "is_byok": True}


def metrics(usage: dict[str, Any], llm: LlmSpec | None = None, **choice: Any) -> Metrics:
    body = {"choices": [{"message": {"content": "x"}} | choice], "usage": usage}
    return metrics_of(ModelResponse(body, {}, 0.1), llm or LlmSpec(), 1)


@pytest.mark.parametrize(
    ("usage", "prompt", "completion", "cached"),
    [
        ({"prompt_tokens": 10, "completion_tokens": "20"}, 10, 20, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 50_000}}, 10, None, 10),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 11}, 10, None, 10),
        ({"prompt_tokens": -5, "completion_tokens": "n/a"}, None, None, None),
        ({"prompt_tokens": inf, "completion_tokens": nan}, None, None, None),
        ({"prompt_tokens": 1e30, "completion_tokens": 10**400}, None, None, None),
        ({"prompt_tokens": True, "completion_tokens": [1]}, None, None, None),
    ],
)
def test_impossible_counts_are_unknown(
    usage: dict[str, Any], prompt: int | None, completion: int | None, cached: int | None
) -> None:
    read = metrics(usage, PRICES)
    assert (read.prompt_tokens, read.completion_tokens, read.cached_tokens) == (prompt, completion, cached)
    assert read.cost_usd is None or read.cost_usd >= 0


@pytest.mark.parametrize("cost", [-3, "nan", nan, inf, 1e30, "free", True, None])
def test_impossible_cost_is_unknown(cost: object) -> None:
    assert metrics({"prompt_tokens": 1, "completion_tokens": 2, "cost": cost}).cost_usd is None


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


def test_anthropic_usage_may_be_invalid() -> None:
    usage = {"input_tokens": 7, "cache_read_input_tokens": nan, "cache_creation_input_tokens": "x", "output_tokens": -1}
    chat = WIRES[WireProtocol.ANTHROPIC].completion({"content": [], "usage": usage})
    assert metrics(chat["usage"]).prompt_tokens == 7
