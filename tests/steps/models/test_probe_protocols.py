"""In which protocols an agent program's endpoint is to be asked."""

from __future__ import annotations

from typing import Any

import pytest

from steps.contracts.wire_protocol import WireProtocol
from steps.errors import ConfigError
from steps.models.probe import EndpointFacts, probe
from tests.model_server import Answer, model_server, play
from tests.steps.models.model_specs import spec

CHAT, RESPONSES, ANTHROPIC = WireProtocol
SPEAKS = play(Answer("ready"))


def found(
    asks_in: WireProtocol, protocols: tuple[str, ...], settled: tuple[WireProtocol, ...] = (), **llm: Any
) -> tuple[EndpointFacts, list[str]]:
    """What plan finds, and in which protocols the server was asked."""
    with model_server(SPEAKS, protocols=protocols) as server:
        facts = probe(spec(server.url, agent={"name": "program"}, **llm), tools=False, asks_in=asks_in, speaks=settled)
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
    with pytest.raises(ConfigError, match="nothing speaks OpenAI's protocol"):
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
