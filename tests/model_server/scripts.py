"""Ready-made scripts. None but those with faults keeps state: what is played follows from the request alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.model_server.answers import FAULTS, Answer, Call, Fault, Request, Script, error

Item = Answer | Fault | list[Answer | Fault]
"""A turn: an answer, or what one and the same request meets in turn, the last of it for good."""


def play(*items: Item) -> Script:
    """A conversation: the turn is the number of assistant messages in the request; the last item repeats.

    So every unit that asks gets a conversation of its own, however many ask at a time.
    """
    met: Counter[str] = Counter()

    def script(request: Request) -> Answer | Fault:
        turn: int = sum(message.get("role") == "assistant" for message in request["messages"])
        item = items[min(turn, len(items) - 1)]
        if not isinstance(item, list):
            return item
        name = fingerprint(request)
        met[name] += 1
        return item[min(met[name], len(item)) - 1]

    return script


def by_text(scripts: Mapping[str, Script], otherwise: Script | None = None) -> Script:
    """Another script for each request in whose messages one of the texts is found; the first that is found counts."""

    def script(request: Request) -> Answer | Fault:
        messages = json.dumps(request["messages"], ensure_ascii=False)
        for text, chosen in scripts.items():
            if json.dumps(text, ensure_ascii=False)[1:-1] in messages:
                return chosen(request)
        return otherwise(request) if otherwise else error(400, "the script has nothing for these messages")

    return script


def flaky(script: Script, *faults: Fault | Answer) -> Script:
    """Every request meets the faults first, one after the other; asked once more, it is served."""
    met: Counter[str] = Counter()

    def first_fails(request: Request) -> Answer | Fault:
        name = fingerprint(request)
        met[name] += 1
        return faults[met[name] - 1] if met[name] <= len(faults) else script(request)

    return first_fails


def every(number: int, fault: Fault, script: Script) -> Script:
    """Each ``number``-th request fails, whosever it is."""
    count = [0]

    def some_fail(request: Request) -> Answer | Fault:
        count[0] += 1
        return fault if count[0] % number == 0 else script(request)

    return some_fail


def after(number: int, fault: Fault, script: Script) -> Script:
    """From the request after the ``number``-th on, all fail: a key that dies, a quota that runs out."""
    count = [0]

    def ends(request: Request) -> Answer | Fault:
        count[0] += 1
        return fault if count[0] > number else script(request)

    return ends


def refusing(parameter: str, fault: Fault, script: Script) -> Script:
    """Requests that have this parameter at all meet the fault."""
    return lambda request: fault if parameter in request else script(request)


def fingerprint(request: Request) -> str:
    """What tells requests apart: their messages."""
    return hashlib.sha256(json.dumps(request["messages"], sort_keys=True).encode()).hexdigest()


def from_file(path: Path) -> Script:
    """A script as JSON: ``{"conversations": [{"when": TEXT, "play": [ITEM...]}], "otherwise": [ITEM...]}``.

    An ITEM is ``{"text", "calls": [{"name", "arguments"}], "reasoning", ...}`` (the fields of Answer), the name of a
    fault, or a list of those that the same request meets in turn.
    """
    fields = json.loads(path.read_text("utf-8"))
    scripts = {
        conversation["when"]: play(*map(_item, conversation["play"]))
        for conversation in fields.get("conversations", [])
    }
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
