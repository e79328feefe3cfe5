"""Scripts of answers. Only those with faults keep state; else an answer follows from its request alone."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.model_server.answers import FAULTS, Answer, Call, Fault, Request, Script, error

Item = Answer | Fault | list[Answer | Fault]
"""A turn: an answer, or the answers to repetitions of one request, of which the last stays."""


_SERVED = Answer()


def play(*items: Item) -> Script:
    """Play a conversation: the turn is the number of assistant messages in the request; the last item repeats.

    Concurrent units thus have a conversation each.
    """
    met: Counter[str] = Counter()

    def script(request: Request) -> Answer | Fault:
        turn: int = sum(message.get("role") == "assistant" for message in request["messages"])
        item = items[min(turn, len(items) - 1)]
        return _next(met, request, item) if isinstance(item, list) else item

    return script


def _next(met: Counter[str], request: Request, answers: list[Answer | Fault]) -> Answer | Fault:
    """Count a request by its messages; return the answer to this repetition."""
    name = hashlib.sha256(json.dumps(request["messages"], sort_keys=True).encode()).hexdigest()
    met[name] += 1
    return answers[min(met[name], len(answers)) - 1]


def by_text(scripts: Mapping[str, Script], otherwise: Script | None = None) -> Script:
    """Choose the script by the first text that the messages of a request contain."""

    def script(request: Request) -> Answer | Fault:
        messages = json.dumps(request["messages"], ensure_ascii=False)
        for text, chosen in scripts.items():
            if json.dumps(text, ensure_ascii=False)[1:-1] in messages:
                return chosen(request)
        return otherwise(request) if otherwise else error(400, "the script has nothing for these messages")

    return script


def flaky(script: Script, *faults: Fault | Answer) -> Script:
    """Answer each request with the faults first, one per repetition, then by the script."""
    met: Counter[str] = Counter()

    def first_fails(request: Request) -> Answer | Fault:
        answer = _next(met, request, [*faults, _SERVED])
        return script(request) if answer is _SERVED else answer

    return first_fails


def every(number: int, fault: Fault, script: Script) -> Script:
    count = itertools.count(1)
    return lambda request: fault if next(count) % number == 0 else script(request)


def after(number: int, fault: Fault, script: Script) -> Script:
    """Fail all requests after the first ``number``, like a revoked key or a spent quota."""
    count = itertools.count(1)
    return lambda request: fault if next(count) > number else script(request)


def refusing(parameter: str, fault: Fault, script: Script) -> Script:
    return lambda request: fault if parameter in request else script(request)


def from_file(path: Path) -> Script:
    """Read a script: ``{"conversations": [{"when": TEXT, "play": [ITEM...]}], "otherwise": [ITEM...]}``.

    An ITEM is ``{"text", "calls": [{"name", "arguments"}], "reasoning", ...}`` (the fields of Answer), the name of a
    fault, or a list of those for the repetitions of one request.
    """
    fields = json.loads(path.read_text("utf-8"))
    conversations = fields.get("conversations", [])
    scripts = {conversation["when"]: play(*map(_item, conversation["play"])) for conversation in conversations}
    otherwise = play(*map(_item, fields["otherwise"])) if fields.get("otherwise") else None
    return by_text(scripts, otherwise)


def _item(source: Any) -> Item:
    if isinstance(source, list):
        return [_answer_or_fault(entry) for entry in source]
    return _answer_or_fault(source)


def _answer_or_fault(entry: Any) -> Answer | Fault:
    if isinstance(entry, str):
        return FAULTS[entry]
    calls = tuple(Call(**call) for call in entry.get("calls", []))
    return Answer(**{**entry, "calls": calls})
