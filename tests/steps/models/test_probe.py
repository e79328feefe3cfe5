"""The one small call before a run."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.models.probe import probe, probe_for_run
from swe_argo.steps.models.probing import CONNECT_S
from swe_argo.steps.models.small_request import RETRIES
from swe_argo.steps.plan import plan
from swe_argo.steps.settings import settings
from tests.model_server import Answer, Fault, call, model_server, play, refusing
from tests.model_server.answers import (
    BAD_KEY,
    CONTEXT_VLLM,
    NO_QUOTA,
    TOOLS_REFUSED_VLLM,
    UNAVAILABLE,
    Request,
    error,
)
from tests.steps.models.model_specs import spec

CALLS = play(call("report_word", word="ready"))
SPEAKS = play(Answer("ready"))


def test_probe_settles_function_calling() -> None:
    with model_server(CALLS) as server:
        facts = probe(spec(server.url), tools=True)
    assert facts.fn_calling is True
    assert facts.notices == ["openai/m test request succeeded: r2egym calls tools by function calling"]
    assert [request.body["tools"][0]["function"]["name"] for request in server.calls] == ["report_word"]


def test_probe_falls_back_to_text_calls() -> None:
    with model_server(SPEAKS) as server:
        facts = probe(spec(server.url, model="openai/gpt-4.1-sonnet-o3"), tools=True)
    assert facts.fn_calling is False
    assert "in text" in facts.notices[0]


def test_probe_retries_without_tools() -> None:
    with model_server(refusing("tools", TOOLS_REFUSED_VLLM, SPEAKS)) as server:
        facts = probe(spec(server.url), tools=True)
        assert server.counts.requests == 2
    assert facts.fn_calling is False
    assert "does not accept tools" in facts.notices[0]


def test_probe_refuses_impossible_tools() -> None:
    with model_server(refusing("tools", TOOLS_REFUSED_VLLM, SPEAKS)) as server:
        with pytest.raises(ConfigError, match="--use-fn-calling false") as failure:
            probe(spec(server.url, agent={"use_fn_calling": "true"}), tools=True)
        assert failure.value.field == "agent.use_fn_calling"


@pytest.mark.parametrize(
    ("agent", "llm", "fn_calling", "offered"),
    [
        ({"use_fn_calling": "true"}, {}, True, True),
        ({"use_fn_calling": "false"}, {}, False, False),
        ({}, {"native_tool_calling": False}, False, False),
        ({}, {"native_tool_calling": True}, True, True),
        ({"use_fn_calling": "false"}, {"native_tool_calling": True}, False, False),
    ],
)
def test_probe_follows_explicit_setting(agent: Any, llm: Any, fn_calling: bool, offered: bool) -> None:
    with model_server(CALLS) as server:
        assert probe(spec(server.url, agent=agent, **llm), tools=True).fn_calling is fn_calling
        assert server.counts.requests == 1
        assert ("tools" in server.calls[0].body) is offered


def refusing_images(request: Request) -> Answer | Fault:
    """As an endpoint of a model that sees nothing."""
    has_image = any(isinstance(message["content"], list) for message in request["messages"])
    return error(400, "m is not a multimodal model", None, "BadRequestError") if has_image else Answer("ready")


def test_probe_sends_an_image_if_needed() -> None:
    agent = {"issue_images": True}
    with model_server(SPEAKS) as server:
        probe(spec(server.url, agent=agent), tools=True)
        (text, image) = server.calls[-1].body["messages"][0]["content"]
    assert text["type"] == "text"
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    with model_server(refusing_images) as server, pytest.raises(ConfigError) as failure:
        probe(spec(server.url, agent=agent), tools=True)
    assert failure.value.field == "agent.issue_images"
    assert "accepts no images for openai/m" in failure.value.reason
    assert "m is not a multimodal model" in failure.value.reason
    with model_server(refusing_images) as server:
        probe(spec(server.url), tools=True)  # nobody asked for them


def test_probe_offers_tools_if_needed() -> None:
    with model_server(SPEAKS) as server:
        assert probe(spec(server.url), tools=False).fn_calling is None
        assert "tools" not in server.calls[0].body


def test_probe_gives_long_reasoning_room() -> None:
    script = refusing("max_tokens", error(500, "not the limited one"), CALLS)

    def cut(request: dict[str, Any]) -> Answer | Fault:
        return Answer("so " * 2000) if "max_tokens" in request else script(request)

    with model_server(cut) as server:
        assert probe(spec(server.url), tools=True).fn_calling is True
        assert [server_call.body.get("max_tokens") for server_call in server.calls] == [1024, None]


@pytest.mark.parametrize(
    ("fault", "message", "failure_class"),
    [
        (BAD_KEY, "requires an API key .*set OPENAI_API_KEY or LLM_API_KEY", FailureClass.MODEL_ACCESS),
        (NO_QUOTA, "denied access", FailureClass.MODEL_ACCESS),
        (Fault(404, {"detail": "Not Found"}), "llm.base_url: .* does not serve OpenAI's protocol", FailureClass.CONFIG),
        (CONTEXT_VLLM, "llm.max_output_tokens: .* leaves no room", FailureClass.CONFIG),
        (error(400, "Invalid 'seed'", None, "", "seed"), "llm.seed: .*refused the request", FailureClass.CONFIG),
    ],
)
def test_probe_reports_lasting_faults(fault: Fault, message: str, failure_class: FailureClass) -> None:
    with model_server(play(fault)) as server:
        with pytest.raises(ConfigError, match=message) as failure:
            probe(spec(server.url, seed=1), tools=True)
        assert failure.value.failure_class is failure_class
        assert "\n" not in str(failure.value)
        assert server.counts.requests == 1


def test_unknown_model_lists_known_ones() -> None:
    with (
        model_server(CALLS, models=("openai/gpt-oss-20b", "other")) as server,
        pytest.raises(ConfigError, match=r"agent.model: .*has no model gpt-oss-20b") as failure,
    ):
        probe(spec(server.url, model="openai/gpt-oss-20b"), tools=True)
    assert "write openai/openai/gpt-oss-20b; it has: openai/gpt-oss-20b, other" in str(failure.value)


def test_unreachable_endpoint_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        url = f"http://127.0.0.1:{line.getsockname()[1]}/v1"
    with pytest.raises(InfraError, match=rf"{url} refuses connections: check .* that llm.base_url is its address"):
        probe(spec(url, num_retries=0), tools=True)
    with model_server(play(UNAVAILABLE)) as server, pytest.raises(InfraError, match="503"):
        probe(spec(server.url, num_retries=1), tools=True)


def test_blocked_endpoint_is_explained() -> None:
    """As behind a network policy: packets are dropped, nothing is refused."""
    assert (RETRIES + 1) * CONNECT_S < 45
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        patch.setattr("swe_argo.steps.models.probing.CONNECT_S", 0.2)
        name = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]  # they take all the room that there is
        for blocker in waiting:
            blocker.setblocking(False)
            blocker.connect_ex(name)
        with pytest.raises(InfraError, match=r"no connection within 0\.2 s.*network\.allow"):
            probe(spec(f"http://127.0.0.1:{name[1]}/v1"), tools=True)
        for blocker in waiting:
            blocker.close()


def test_wrong_key_names_its_secret(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LLM_API_KEY", "sk-wrong")
    environment.setenv("SWE_ARGO_CREDENTIALS", "tinker-credentials")
    settings.cache_clear()
    place = r"check the API key \(LLM_API_KEY of Secret tinker-credentials\)"
    with model_server(SPEAKS, key="sk-right") as server, pytest.raises(ConfigError, match=place):
        probe(spec(server.url), tools=True)
    settings.cache_clear()


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        ({}, "set OPENAI_API_KEY or LLM_API_KEY, or api_key in the group of --llm-config"),
        ({"POD_NAME": "r-plan-1"}, "set the chart's credentials to a Secret that contains OPENAI_API_KEY"),
        ({"POD_NAME": "p", "SWE_ARGO_CREDENTIALS": "keys"}, "add it to Secret keys as OPENAI_API_KEY"),
    ],
    ids=["here", "pod", "secret"],
)
@pytest.mark.parametrize(
    "fault",
    [
        BAD_KEY,
        error(401, "You didn't provide an API key."),
        error(400, "API key not valid. Please pass a valid API key."),
        error(403, "Invalid API key"),
    ],
    ids=["openai", "none", "google", "403"],
)
def test_missing_key_is_not_called_wrong(
    environment: pytest.MonkeyPatch, variables: dict[str, str], way: str, fault: Fault
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    settings.cache_clear()
    with model_server(play(fault)) as server, pytest.raises(ConfigError, match="requires an API key") as failure:
        probe(spec(server.url), tools=True)
    assert str(failure.value).endswith(f": {way}")
    settings.cache_clear()


def test_plain_403_is_not_a_key_failure(environment: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    with model_server(play(error(403, "Forbidden"))) as server, pytest.raises(ConfigError, match="denied access"):
        probe(spec(server.url), tools=True)


@pytest.mark.parametrize(
    ("url", "run_spec", "message"),
    [
        ("not-an-address", {}, "llm.base_url: an address starts with http"),
        ("http://host:99999/v1", {}, "llm.base_url: an address starts with http"),
        ("http://host:port/v1", {}, "llm.base_url: an address starts with http"),
        ("http://[::1/v1", {}, "llm.base_url: an address starts with http"),
        ("http://my host/v1", {}, "llm.base_url: an address starts with http"),
        ("http://a..b/v1", {}, "llm.base_url: an address starts with http"),
        ("http://10.0.0.300/v1", {}, "llm.base_url: http://10.0.0.300/v1 is not a valid address"),
        ("https://api.openai.com/v1", {}, "no API key for api.openai.com: set OPENAI_API_KEY"),
        (None, {"model": "anthropic/claude-4"}, "llm.base_url: no endpoint is known for model anthropic/claude-4"),
        (
            None,
            {"model": "openai/Qwen/Qwen3"},
            "llm.base_url: no endpoint is known for model Qwen/Qwen3: give its endpoint with --base-url",
        ),
    ],
)
def test_invalid_address_is_never_asked(url: str | None, run_spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        probe(spec(url, **run_spec), tools=True)


def test_cost_limit_needs_a_price() -> None:
    with model_server(CALLS) as server:
        limited = spec(server.url, agent={"max_cost_usd": 1.0})
        with pytest.raises(ConfigError, match=r"agent.max_cost_usd: .*does not report costs.*llm.input_cost_per_token"):
            probe(limited, tools=True)
        with pytest.raises(ConfigError, match=r"max_cost_usd: .*does not report costs"):
            probe(spec(server.url).model_copy(update={"max_cost_usd": 5.0}), tools=True)
        probe(spec(server.url, agent={"max_cost_usd": 1.0}, input_cost_per_token=1e-6), tools=True)
        assert probe(spec(server.url, agent={"name": "sweagent"}), tools=True), "its own 3 $, which nobody requested"
    with model_server(play(Answer("x", cost_usd=0.001))) as server:
        probe(spec(server.url, agent={"max_cost_usd": 1.0}), tools=True)


def test_price_needs_token_counts() -> None:
    prices: Any = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5}
    with (
        model_server(play(Answer("x", usage=False))) as server,
        pytest.raises(ConfigError, match=r"agent.max_cost_usd: .* does not report tokens"),
    ):
        probe(spec(server.url, agent={"max_cost_usd": 1.0}, **prices), tools=True)


@pytest.mark.parametrize(
    ("name", "free"), [("input_cost_per_token", "completion"), ("output_cost_per_token", "prompt")]
)
def test_single_price_gives_a_notice(name: str, free: str) -> None:
    price: Any = {name: 1e-6}
    with model_server(CALLS) as server:
        notices = probe(spec(server.url, **price), tools=True).notices
        assert notices[-1] == f"only llm.{name} is given: {free} tokens count as free"


def test_dropped_parameter_has_notice() -> None:
    refused = error(400, "Unsupported value: 'temperature'", "unsupported_value", "", "temperature")
    with model_server(refusing("temperature", refused, CALLS)) as server:
        notices = probe(spec(server.url), tools=True).notices
    assert notices[-1].endswith("does not accept temperature for openai/m: requests omit it")


def test_probe_is_skipped_without_model(tmp_path: Path) -> None:
    with model_server(CALLS) as server:
        run_spec = spec(server.url)
        assert probe_for_run(run_spec, solves=False, before=None).fn_calling is None
        gold = run_spec.model_copy(update={"agent": run_spec.agent.model_copy(update={"name": "gold"})})
        assert probe_for_run(gold, solves=True, before=None).fn_calling is None
        assert server.counts.requests == 0


def test_resumed_run_keeps_probe_result(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SWE_ARGO_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    with model_server(CALLS) as first:
        run_spec = spec(first.url, agent={"max_steps": 3})
        run_spec = run_spec.model_copy(
            update={
                "store": str(tmp_path / "store"),
                "select": run_spec.select.model_copy(update={"k": 1}),
                "sandbox": run_spec.sandbox.model_copy(update={"allow_host": True}),
            }
        )
        planned = plan(run_spec)
        assert first.counts.requests == 1
    assert any("function calling" in notice for notice in planned.notices)
    run = tmp_path / "store/runs/r/run.json"
    assert RunFile.from_bytes(run.read_bytes()).fn_calling is True
    with model_server(SPEAKS) as second:
        again = run_spec.model_copy(update={"llm": run_spec.llm.model_copy(update={"base_url": second.url})})
        plan(again)
        assert second.counts.requests == 1
    assert json.loads(run.read_bytes())["fn_calling"] is True


def test_refused_plan_writes_nothing(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SWE_ARGO_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    with model_server(play(BAD_KEY)) as server:
        run_spec = spec(server.url)
        run_spec = run_spec.model_copy(
            update={
                "store": str(tmp_path / "store"),
                "select": run_spec.select.model_copy(update={"k": 1}),
                "sandbox": run_spec.sandbox.model_copy(update={"allow_host": True}),
            }
        )
        with pytest.raises(ConfigError, match="requires an API key"):
            plan(run_spec)
    assert not list((tmp_path / "store").rglob("*.json"))
