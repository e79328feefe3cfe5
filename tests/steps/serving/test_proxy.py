"""The proxy's API, through the real clients: sampled tokens, tools, errors, traces and weights."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from swe_argo.steps.training.export_samples import calls_of_trace
from tests.tinker_server.proxy import ADMIN_KEY, CALLER_KEY, RunningProxy
from tests.tinker_server.server import Sampled
from tests.workflows.command import wait_for

HI: Any = [{"role": "user", "content": "Hi"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "run", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
}
CALL = '<tool_call>\n{"name": "run", "arguments": {"command": "ls -l"}}\n</tool_call>'
IDS = {"return_token_ids": True}


@pytest.fixture
def client(proxy: RunningProxy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=proxy.url, api_key=CALLER_KEY, max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(**({"model": "tinker", "messages": HI} | more))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_answer_has_the_sampled_tokens(proxy: RunningProxy, client: openai.OpenAI) -> None:
    reply = chat(client, logprobs=True, max_tokens=50, extra_body=IDS)
    (call,) = proxy.server.calls
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello.", "stop")
    assert reply.prompt_token_ids == call.prompt
    assert proxy.template.decode(call.prompt) == "user\nHi\nassistant\n"
    assert choice.token_ids == call.outputs[0]
    assert [entry.logprob for entry in choice.logprobs.content] == call.logprobs[0]
    assert "".join(entry.token for entry in choice.logprobs.content) == "Hello.<|im_end|>"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(call.prompt), len(call.outputs[0]))
    assert (reply.model, reply.system_fingerprint, call.weights) == ("tinker", "base", "test/model")


def test_parameters_reach_the_sampler(proxy: RunningProxy, client: openai.OpenAI) -> None:
    chat(client, temperature=0, top_p=0.5, seed=7, max_completion_tokens=9, extra_body={"top_k": 3})
    chat(client)
    first, second = (call.parameters for call in proxy.server.calls)
    assert first == {"temperature": 0, "top_p": 0.5, "seed": 7, "max_tokens": 9, "top_k": 3, "stop": [258]}
    assert (second["temperature"], second["max_tokens"]) == (1, 4096 - len(proxy.server.calls[1].prompt))


def test_stop_text_is_removed(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says("one STOP")
    reply = chat(client, stop=["STOP", "HALT"])
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("one ", "stop")
    assert proxy.server.calls[0].parameters["stop"] == ["<|im_end|>", "STOP", "HALT"]


def test_several_choices_are_one_call(proxy: RunningProxy, client: openai.OpenAI) -> None:
    texts = iter(["one", "two", "three"])
    proxy.server.answer = lambda *_: proxy.answer(next(texts))
    reply = chat(client, n=3)
    assert (reply.choices[0].logprobs, hasattr(reply, "prompt_token_ids")) == (None, False)  # nobody asked for them
    assert [choice.message.content for choice in reply.choices] == ["one", "two", "three"]
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len(proxy.server.calls) == 1
    assert reply.usage.completion_tokens == len("onetwothree") + 3


def test_cut_answer_reports_length(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says("Hel", at_limit=True)
    assert chat(client, max_tokens=3).choices[0].finish_reason == "length"


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_infinite_logprob_is_an_error(proxy: RunningProxy, client: openai.OpenAI, bad: float) -> None:
    proxy.says("Hel", at_limit=True, logprobs=[-0.5, bad, -0.5])
    with pytest.raises(openai.InternalServerError, match="a log probability that is not finite"):
        chat(client, max_tokens=3)


def test_proxy_offers_and_parses_tools(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says(f"I look.\n{CALL}")
    reply = chat(client, tools=[TOOL], tool_choice="auto")
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("run", {"command": "ls -l"})
    assert json.dumps(TOOL) in proxy.template.decode(proxy.server.calls[0].prompt)
    unoffered = chat(client, tools=[TOOL], tool_choice="none").choices[0]
    assert (unoffered.message.tool_calls, unoffered.finish_reason) == (None, "stop")
    assert "tools" not in proxy.template.decode(proxy.server.calls[1].prompt)


def test_next_turn_extends_the_tokens(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says(f"I look.\n{CALL}")
    reply = chat(client, tools=[TOOL])
    message = reply.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a.py"}
    chat(client, tools=[TOOL], messages=[*HI, message, result])
    first, second = proxy.server.calls
    before = [*first.prompt, *first.outputs[0]]
    assert second.prompt[: len(before)] == before


def test_stream_equals_whole_answer(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says(f"<think>\nhm\n</think>\n\nI look.\n{CALL}")
    usage: Any = {"include_usage": True}
    chunks = list(chat(client, tools=[TOOL], stream=True, stream_options=usage, logprobs=True, extra_body=IDS))
    first, end, last = chunks
    delta = first.choices[0].delta
    assert (delta.content, delta.reasoning_content, delta.tool_calls[0].function.name) == ("I look.", "hm", "run")
    assert first.choices[0].token_ids == proxy.server.calls[0].outputs[0]
    assert first.prompt_token_ids == proxy.server.calls[0].prompt
    assert len(first.choices[0].logprobs.content) == len(proxy.server.calls[0].outputs[0])
    assert end.choices[0].finish_reason == "tool_calls"
    assert last.usage.total_tokens == len(proxy.server.calls[0].prompt) + len(proxy.server.calls[0].outputs[0])


def test_completions_accept_text_and_ids(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.says(" there")
    for prompt in ("Hi", proxy.template.encode("Hi")):
        reply = client.completions.create(model="tinker", prompt=prompt, logprobs=1, max_tokens=20, extra_body=IDS)
        assert (reply.choices[0].text, reply.choices[0].finish_reason) == (" there", "stop")
        assert reply.choices[0].logprobs is not None
        assert reply.choices[0].logprobs.token_logprobs == proxy.server.calls[-1].logprobs[0]
        assert proxy.server.calls[-1].prompt == proxy.template.encode("Hi")
    pieces = list(client.completions.create(model="tinker", prompt="Hi", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == " there"


@pytest.mark.parametrize("more", [{"messages": [{"role": "user", "content": "x" * 5000}]}, {"max_tokens": 4090}])
def test_full_context_is_an_openai_error(client: openai.OpenAI, more: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 4096 tokens") as error:
        chat(client, **more)
    assert (error.value.code, error.value.type) == ("context_length_exceeded", "invalid_request_error")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required", "tools": [TOOL]}, "tool_choice"),
        ({"top_logprobs": 5, "logprobs": True}, "top_logprobs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ],
)
def test_unsupported_field_is_refused(client: openai.OpenAI, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, **more)
    assert error.value.param == param


def test_unknown_model_or_key_is_refused(proxy: RunningProxy, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tinker"]
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        chat(client, model="gpt")
    with openai.OpenAI(base_url=proxy.url, api_key="other") as stranger:
        with pytest.raises(openai.AuthenticationError):
            chat(stranger)
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
    assert proxy.server.calls == []


@pytest.mark.parametrize(
    ("category", "kind"), [("user", openai.BadRequestError), ("server", openai.InternalServerError)]
)
def test_sampler_error_sets_the_status(
    proxy: RunningProxy, client: openai.OpenAI, category: str, kind: type[openai.APIStatusError]
) -> None:
    proxy.server.answer = lambda *_: Sampled([], error=("no such luck", category))
    with pytest.raises(kind, match="no such luck") as error:
        chat(client)
    assert error.value.response.headers.get("retry-after") == (None if category == "user" else "5")


def test_sdk_retries_transient_failures(proxy: RunningProxy, client: openai.OpenAI) -> None:
    proxy.server.refuse[:] = [503]
    assert chat(client).choices[0].message.content == "Hello."


def test_hangup_cancels_sampling(proxy: RunningProxy) -> None:
    proxy.says("late", delay_s=600.0)
    before = proxy.server.submitted

    async def hang_up() -> None:
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=CALLER_KEY, max_retries=0) as caller:
            call = asyncio.create_task(caller.chat.completions.create(model="tinker", messages=HI))
            while proxy.server.submitted == before:
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(hang_up())
    wait_for(lambda: 'responses_total{status="499"} 1\n' in read(f"{proxy.root}/metrics"))
    wait_for(lambda: "calls_in_flight 0\n" in read(f"{proxy.root}/metrics"))


def test_proxy_traces_rollouts_by_path(proxy: RunningProxy) -> None:
    with openai.OpenAI(base_url=f"{proxy.root}/t/unit-1/v1", api_key=CALLER_KEY) as client:
        chat(client, tools=[TOOL])
        list(chat(client, stream=True))
        assert [model.id for model in client.models.list()] == ["tinker"]
        lines = client.get("../trace", cast_to=str).splitlines()
    calls = calls_of_trace(lines)
    assert [(call.prompt, call.output, call.logprobs) for call in calls] == [
        (sampled_call.prompt, sampled_call.outputs[0], sampled_call.logprobs[0]) for sampled_call in proxy.server.calls
    ]
    assert [(call.weights, call.finish_reason) for call in calls] == [("base", "stop")] * 2
    elsewhere = f"{proxy.root}/t/..%2F..%2Fx/v1"
    with openai.OpenAI(base_url=elsewhere, api_key=CALLER_KEY) as client, pytest.raises(openai.NotFoundError):
        chat(client)


def test_weights_change_needs_admin_key(proxy: RunningProxy, client: openai.OpenAI) -> None:
    other = {"version": "000001", "sampler_path": "tinker://run/sampler_weights/000001"}
    with pytest.raises(openai.AuthenticationError):
        client.post("../admin/weights", body=other, cast_to=object)
    with openai.OpenAI(base_url=proxy.url, api_key=ADMIN_KEY) as admin:
        admin.post("../admin/weights", body=other, cast_to=object)
        assert chat(client).system_fingerprint == "000001"
        assert proxy.server.calls[-1].weights == other["sampler_path"]
        proxy.server.missing.add("tinker://run/none")
        with pytest.raises(openai.BadRequestError):
            admin.post("../admin/weights", body={"version": "x", "sampler_path": "tinker://run/none"}, cast_to=object)
        assert chat(client).system_fingerprint == "000001"
        admin.post("../admin/weights", body={"version": "base"}, cast_to=object)
    assert chat(client).system_fingerprint == "base"


def test_health_and_metrics_need_no_key(proxy: RunningProxy, client: openai.OpenAI) -> None:
    before = read(f"{proxy.root}/metrics")
    chat(client)
    assert json.loads(read(f"{proxy.root}/health")) == {"status": "ok", "weights": "base", "pointer": None}

    def count(page: str, name: str) -> float:
        return next(
            (float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"swe_argo_proxy_{name}")), 0
        )

    after = read(f"{proxy.root}/metrics")
    assert count(after, 'responses_total{status="200"}') == count(before, 'responses_total{status="200"}') + 1
    assert count(after, "completion_tokens_total") == count(before, "completion_tokens_total") + len("Hello.") + 1
    assert 'weights{version="base"} 1' in after


def test_call_keeps_its_weights(proxy: RunningProxy) -> None:
    async def drive() -> None:
        async with (
            openai.AsyncOpenAI(base_url=proxy.url, api_key=CALLER_KEY, max_retries=0) as caller,
            openai.AsyncOpenAI(base_url=proxy.url, api_key=ADMIN_KEY, max_retries=0) as admin,
        ):
            sampled, before = proxy.answer("slow", delay_s=1.0), proxy.server.submitted
            proxy.server.answer = lambda *_: sampled
            slow = asyncio.create_task(caller.chat.completions.create(model="tinker", messages=HI))
            while proxy.server.submitted == before:
                await asyncio.sleep(0.01)
            proxy.says("quick")
            two = {"version": "two", "sampler_path": "tinker://two"}
            await admin.post("../admin/weights", body=two, cast_to=object)
            completion = await slow
            assert (completion.choices[0].message.content, completion.system_fingerprint) == ("slow", "base")
            await admin.post("../admin/weights", body={"version": "base"}, cast_to=object)

    asyncio.run(drive())
    assert proxy.server.calls[0].weights == "test/model"
