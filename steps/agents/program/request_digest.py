"""Digests of an agent program's requests: two tries of a program that ask the same get the same digest."""

from __future__ import annotations

import hashlib
import json
import math
from itertools import count, groupby
from typing import Any

from swe_argo.steps.agents.observation_diff import without_volatile_parts
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.program_requests import wire_at

_IRRELEVANT = frozenset(
    {"metadata", "client_metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
"""Fields of a request by which an endpoint knows who asks, or what it may have cached: names of sessions and the like,
another one in every run of a program."""
_CONVERSATION = ("messages", "input")
_LONG = 200
"""Characters of a text whose digest is remembered: every request repeats the texts of those before it."""


class RequestDigests:
    """Digests over all that matters to a model's answer. Several threads may use it."""

    def __init__(self, workdir: str) -> None:
        """``workdir``: where the repository is."""
        self._workdir = workdir
        self._known: dict[bytes, str] = {}

    def digest(self, method: str, path: str, body: bytes) -> str | None:
        """Return the digest of a request; None where the body is no request to a model."""
        try:
            request = json.loads(body)
            if method != "POST" or not isinstance(request, dict):
                return None
            wire = wire_at(path)
            by_block = wire is not None and wire.protocol is WireProtocol.ANTHROPIC
            for name in _CONVERSATION:
                if isinstance(request.get(name), list):
                    request[name] = _order_results(request[name], by_block=by_block)
            relevant = {name: self._steady(value) for name, value in request.items() if name not in _IRRELEVANT}
            return hashlib.sha256(_dump([path, relevant])).hexdigest()
        except (AttributeError, TypeError, ValueError, RecursionError):
            return None

    def _steady(self, value: Any) -> Any:
        """Return the value without what varies from one run of a program to the next, in the texts within."""
        if isinstance(value, str):
            return self._steady_text(value)
        if isinstance(value, list):
            return [self._steady(each) for each in value]
        if isinstance(value, dict):
            return {name: self._steady(each) for name, each in value.items()}
        return value

    def _steady_text(self, text: str) -> str:
        if len(text) < _LONG:
            return without_volatile_parts(text, self._workdir)
        name = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if (known := self._known.get(name)) is None:
            steady = without_volatile_parts(text, self._workdir).encode(errors="surrogatepass")
            known = self._known[name] = hashlib.sha256(steady).hexdigest()
        return known


def _order_results(items: list[Any], *, by_block: bool) -> list[Any]:
    """Return the items of a conversation, the results of parallel calls in the order of these calls.

    Agents send results in the order in which the calls end. What else stands between two turns of the model follows.

    Args:
        items: messages of chat completions or of Anthropic's, or items of Responses.
        by_block: whether they are messages of content blocks. Neighbours of one role are then one message.
    """
    if by_block:
        items = [block for message in items for block in _blocks(message)]
    places: dict[object, int] = {}
    numbers, ordered = count(), list[Any]()
    for of_model, turn in groupby(items, _is_of_model):
        if of_model:
            said = list(turn)
            places |= {call: next(numbers) for item in said for call in _calls(item)}
        else:
            said = sorted(turn, key=lambda item: places.get(_answered_call(item), math.inf))
        ordered += map(_without_id, said)
    return ordered


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message's blocks, each with its role. The mark of what is to be cached moves to the newest block."""
    content = message.get("content") or ""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [
        {"role": message.get("role")} | {name: part for name, part in block.items() if name != "cache_control"}
        for block in blocks
    ]


def _is_of_model(item: dict[str, Any]) -> bool:
    kind = str(item.get("type"))
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _calls(item: dict[str, Any]) -> list[str]:
    """Return the ids of the calls that a message, block or item of the model makes."""
    ids = [call.get("id") for call in item.get("tool_calls") or []]
    own = item.get("call_id") or (item.get("id") if item.get("type") == "tool_use" else None)
    return [str(name) for name in (*ids, own) if name is not None]


def _answered_call(item: dict[str, Any]) -> str:
    return str(item.get("tool_call_id") or item.get("tool_use_id") or item.get("call_id"))


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of Responses without its id: Codex names those that it makes anew in every run. A call and its
    result share another id, and an item that stands for an earlier one has nothing but its id."""
    if item.get("type") in ("tool_use", "item_reference"):
        return item
    return {name: part for name, part in item.items() if name != "id"}


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
