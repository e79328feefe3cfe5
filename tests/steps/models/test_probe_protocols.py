"""In which protocols an agent program's endpoint is to be asked."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.probing import EndpointFacts
from swe_argo.steps.models.program_probe import probe_for_program
from swe_argo.steps.models.protocols.table import WIRES
from swe_argo.steps.models.small_request import FUNCTION, WITH_TOOL
from tests.model_server import Answer, Fault, flaky, model_server, play, refusing
from tests.model_server.answers import TOOLS_REFUSED_VLLM, UNAVAILABLE, error
from tests.steps.models.model_specs import spec

CHAT, RESPONSES, ANTHROPIC = WireProtocol
SPEAKS = play(Answer("ready"))


def run_probe(
    asks_in: WireProtocol, protocols: tuple[str, ...], settled: tuple[WireProtocol, ...] = (), **llm: Any
) -> tuple[EndpointFacts, list[str]]:
    """What plan finds, and in which protocols the server was asked."""
    with model_server(SPEAKS, protocols=protocols) as server:
        facts = probe_for_program(spec(server.url, agent={"name": "program"}, **llm), asks_in, settled)
        return facts, [request.protocol for request in server.calls]


@pytest.mark.parametrize("asks_in", list(WireProtocol))
def test_probe_uses_agents_protocol_once(asks_in: WireProtocol) -> None:
    facts, protocols = run_probe(asks_in, tuple(WireProtocol))
    assert (facts.speaks, protocols, facts.notices) == ([asks_in], [asks_in], [])
    assert facts.usage.calls == 1


@pytest.mark.parametrize("asks_in", [RESPONSES, ANTHROPIC])
def test_translation_gives_a_notice(asks_in: WireProtocol) -> None:
    facts, protocols = run_probe(asks_in, ("chat",))
    assert (facts.speaks, protocols) == ([CHAT], ["chat"])
    assert "translated to chat completions" in facts.notices[0]


def test_token_ids_add_chat_completions() -> None:
    assert run_probe(ANTHROPIC, tuple(WireProtocol), logprobs=True)[0].speaks == [ANTHROPIC, CHAT]
    assert run_probe(ANTHROPIC, ("anthropic",), logprobs=True)[0].speaks == [ANTHROPIC]


def test_unusable_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="speaks neither OpenAI Responses, which program uses, nor chat"):
        run_probe(RESPONSES, ("anthropic",))
    with pytest.raises(ConfigError, match=r"does not speak chat completions, which program uses .*404.*--base-url"):
        run_probe(CHAT, ("anthropic",))


def test_speaks_setting_is_obeyed() -> None:
    facts, protocols = run_probe(ANTHROPIC, tuple(WireProtocol), speaks=["chat"])
    assert (facts.speaks, protocols) == ([CHAT], ["chat"])
    with pytest.raises(ConfigError, match="speaks neither Anthropic messages") as failure:
        run_probe(ANTHROPIC, tuple(WireProtocol), speaks=["responses"])
    assert failure.value.field == "llm.speaks"
    with pytest.raises(ConfigError, match="404"):
        run_probe(ANTHROPIC, ("chat",), speaks=["anthropic"])


def test_earlier_plans_protocol_stays() -> None:
    assert run_probe(ANTHROPIC, tuple(WireProtocol), settled=(CHAT,))[0].speaks == [CHAT]


def test_speaks_beats_earlier_plan() -> None:
    assert run_probe(ANTHROPIC, tuple(WireProtocol), settled=(CHAT,), speaks=["anthropic,chat"])[0].speaks == [
        ANTHROPIC, CHAT
    ]  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        error(404, "Not Found", None, "not_found_error"),
        error(405, "Method Not Allowed"),
        error(400, "Unknown path /v1/messages"),
        error(501, "not implemented"),
        error(200, "Unexpected endpoint or method. (POST /v1/messages). Returning 200 anyway"),
    ],
    ids=["404", "405", "400", "501", "LM Studio"],
)
def test_missing_path_has_many_forms(fault: Fault) -> None:
    with model_server(SPEAKS) as server:
        server.script = lambda request: SPEAKS(request) if server.counts.requests > 1 else fault
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
        assert ([server_call.protocol for server_call in server.calls], facts.speaks) == (["anthropic", "chat"], [CHAT])


def test_bad_key_and_model_are_reported() -> None:
    with (
        model_server(SPEAKS, key="right") as server,
        pytest.raises(ConfigError, match="requires an API key") as failure,
    ):
        probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
    assert failure.value.failure_class is FailureClass.MODEL_ACCESS
    with model_server(SPEAKS, models=("other",)) as server:
        with pytest.raises(ConfigError, match=r"has no model m .*it has: other"):
            probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
        assert server.counts.requests == 1


def test_transient_fault_keeps_protocol() -> None:
    with model_server(flaky(SPEAKS, UNAVAILABLE)) as server:
        assert probe_for_program(spec(server.url, agent={"name": "program"}), RESPONSES).speaks == [RESPONSES]


def test_rejected_protocol_is_translated() -> None:
    fault = error(422, "store: this server keeps no answers")
    with model_server(SPEAKS) as server:
        server.script = lambda request: SPEAKS(request) if server.counts.requests > 1 else fault
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), RESPONSES)
    assert facts.speaks == [CHAT]
    assert "keeps no answers" in facts.notices[0]


def test_missing_tools_are_reported() -> None:
    with model_server(refusing("tools", TOOLS_REFUSED_VLLM, SPEAKS)) as server:
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), CHAT)
    assert facts.speaks == [CHAT]
    assert "accepts no tools for m, which program may need" in facts.notices[0]


def test_helper_model_is_probed_too() -> None:
    agent = {"name": "program", "helper_model": "openai/small"}
    with model_server(SPEAKS, models=("m", "small")) as server:
        facts = probe_for_program(spec(server.url, agent=agent), ANTHROPIC)
        assert [(request.protocol, request.body["model"]) for request in server.calls] == [
            ("anthropic", "m"), ("anthropic", "small")
        ]  # fmt: skip
    assert facts.notices == ["helpers of program are answered by openai/small"]
    with model_server(SPEAKS, models=("m",)) as server:
        with pytest.raises(ConfigError, match=r"has no model small .*it has: m") as failure:
            probe_for_program(spec(server.url, agent=agent), ANTHROPIC)
        assert failure.value.field == "agent.helper_model"


@pytest.mark.parametrize("asks_in", list(WireProtocol))
def test_probe_request_is_native(asks_in: WireProtocol) -> None:
    with model_server(SPEAKS) as server:
        probe_for_program(spec(server.url, agent={"name": "program"}), asks_in)
        native = server.calls[0].body
    chat = WIRES[asks_in].chat_request(native)
    assert (chat["messages"], chat["tools"][0]["function"]["parameters"]) == (WITH_TOOL, FUNCTION["parameters"])
