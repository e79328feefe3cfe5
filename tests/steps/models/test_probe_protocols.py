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


def found(
    asks_in: WireProtocol, protocols: tuple[str, ...], settled: tuple[WireProtocol, ...] = (), **llm: Any
) -> tuple[EndpointFacts, list[str]]:
    """What plan finds, and in which protocols the server was asked."""
    with model_server(SPEAKS, protocols=protocols) as server:
        facts = probe_for_program(spec(server.url, agent={"name": "program"}, **llm), asks_in, settled)
        return facts, [seen.protocol for seen in server.calls]


@pytest.mark.parametrize("asks_in", list(WireProtocol))
def test_an_endpoint_that_speaks_the_agents_protocol_is_asked_in_it_once(asks_in: WireProtocol) -> None:
    facts, asked = found(asks_in, tuple(WireProtocol))
    assert (facts.speaks, asked, facts.notices) == ([asks_in], [asks_in], [])
    assert facts.usage.calls == 1


@pytest.mark.parametrize("asks_in", [RESPONSES, ANTHROPIC])
def test_another_is_translated_and_that_is_told(asks_in: WireProtocol) -> None:
    facts, asked = found(asks_in, ("chat",))
    assert (facts.speaks, asked) == ([CHAT], ["chat"])
    assert "translated to chat completions" in facts.notices[0]


def test_token_ids_are_asked_for_in_chat_completions_too() -> None:
    assert found(ANTHROPIC, tuple(WireProtocol), logprobs=True)[0].speaks == [ANTHROPIC, CHAT]
    assert found(ANTHROPIC, ("anthropic",), logprobs=True)[0].speaks == [ANTHROPIC]


def test_one_that_speaks_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match="speaks neither OpenAI Responses, in which program asks, nor chat"):
        found(RESPONSES, ("anthropic",))
    with pytest.raises(ConfigError, match=r"does not speak chat completions, in which program asks .*404.*--base-url"):
        found(CHAT, ("anthropic",))


def test_what_is_said_holds() -> None:
    facts, asked = found(ANTHROPIC, tuple(WireProtocol), speaks=["chat"])
    assert (facts.speaks, asked) == ([CHAT], ["chat"])
    with pytest.raises(ConfigError, match="speaks neither Anthropic messages") as told:
        found(ANTHROPIC, tuple(WireProtocol), speaks=["responses"])
    assert told.value.field == "llm.speaks"
    with pytest.raises(ConfigError, match="404"):
        found(ANTHROPIC, ("chat",), speaks=["anthropic"])


def test_what_an_earlier_plan_settled_stays() -> None:
    assert found(ANTHROPIC, tuple(WireProtocol), settled=(CHAT,))[0].speaks == [CHAT]


def test_what_is_said_on_the_command_line_goes_before_what_an_earlier_plan_settled() -> None:
    assert found(ANTHROPIC, tuple(WireProtocol), settled=(CHAT,), speaks=["anthropic,chat"])[0].speaks == [
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
def test_a_path_that_is_not_there_is_told_in_many_ways(fault: Fault) -> None:
    with model_server(SPEAKS) as server:
        server.script = lambda request: SPEAKS(request) if server.counts.requests > 1 else fault
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
        assert ([each.protocol for each in server.calls], facts.speaks) == (["anthropic", "chat"], [CHAT])


def test_a_key_and_a_model_are_told_at_the_first_request() -> None:
    with (
        model_server(SPEAKS, key="right") as server,
        pytest.raises(ConfigError, match="wants a key") as told,
    ):
        probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
    assert told.value.failure_class is FailureClass.MODEL_ACCESS
    with model_server(SPEAKS, models=("other",)) as server:
        with pytest.raises(ConfigError, match=r"has no model m .*it has: other"):
            probe_for_program(spec(server.url, agent={"name": "program"}), ANTHROPIC)
        assert server.counts.requests == 1


def test_a_failure_that_passes_says_nothing_of_the_protocol() -> None:
    with model_server(flaky(SPEAKS, UNAVAILABLE)) as server:
        assert probe_for_program(spec(server.url, agent={"name": "program"}), RESPONSES).speaks == [RESPONSES]


def test_a_server_that_takes_the_path_and_not_the_request_is_asked_in_chat_completions_and_told() -> None:
    fault = error(422, "store: this server keeps no answers")
    with model_server(SPEAKS) as server:
        server.script = lambda request: SPEAKS(request) if server.counts.requests > 1 else fault
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), RESPONSES)
    assert facts.speaks == [CHAT]
    assert "keeps no answers" in facts.notices[0]


def test_a_server_without_tool_calls_is_told() -> None:
    with model_server(refusing("tools", TOOLS_REFUSED_VLLM, SPEAKS)) as server:
        facts = probe_for_program(spec(server.url, agent={"name": "program"}), CHAT)
    assert facts.speaks == [CHAT]
    assert "takes no tools for m, and program may need them" in facts.notices[0]


def test_the_helpers_model_is_asked_for_too() -> None:
    agent = {"name": "program", "helper_model": "openai/small"}
    with model_server(SPEAKS, models=("m", "small")) as server:
        facts = probe_for_program(spec(server.url, agent=agent), ANTHROPIC)
        assert [(each.protocol, each.body["model"]) for each in server.calls] == [
            ("anthropic", "m"), ("anthropic", "small")
        ]  # fmt: skip
    assert facts.notices == ["helpers of program are answered by openai/small"]
    with model_server(SPEAKS, models=("m",)) as server:
        with pytest.raises(ConfigError, match=r"has no model small .*it has: m") as told:
            probe_for_program(spec(server.url, agent=agent), ANTHROPIC)
        assert told.value.field == "agent.helper_model"


@pytest.mark.parametrize("asks_in", list(WireProtocol))
def test_the_question_is_one_of_its_protocol(asks_in: WireProtocol) -> None:
    with model_server(SPEAKS) as server:
        probe_for_program(spec(server.url, agent={"name": "program"}), asks_in)
        native = server.calls[0].body
    chat = WIRES[asks_in].chat_request(native)
    assert (chat["messages"], chat["tools"][0]["function"]["parameters"]) == (WITH_TOOL, FUNCTION["parameters"])
