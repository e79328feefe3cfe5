"""The model server's scripted answers, as a model that is sampled token by token writes them."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.serving.chat_template import ChatTemplate
from tests.model_server import Answer
from tests.tinker_server.server import Answerer, Sampled

_IM_START = 257


def hermes_text(answer: Answer) -> str:
    """An answer with its calls in the form that the tests' template asks for."""
    calls = [f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.text}}}\n</tool_call>' for call in answer.calls]
    return "\n".join([*([answer.text] if answer.text else []), *calls])


def plays(template: ChatTemplate, answers: list[Answer]) -> Answerer:
    """A conversation: the turn is the number of the assistant's messages in the prompt; the last answer repeats."""
    turn_begins = [_IM_START, *template.encode("assistant\n")]

    def answer(prompt: list[int], _parameters: dict[str, Any], _weights: str) -> Sampled:
        size = len(turn_begins)
        starts = [place for place, token in enumerate(prompt) if token == _IM_START]
        turn = sum(prompt[place : place + size] == turn_begins for place in starts) - 1
        text = hermes_text(answers[min(turn, len(answers) - 1)])
        return Sampled([*template.encode(text), template.stop_ids[0]])

    return answer
