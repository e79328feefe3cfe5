"""Digests of an agent program's requests: equal requests of two tries have equal digests."""

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
"""Fields that identify the client or its cache, such as session names, and differ in every run of a program."""
_CONVERSATION = ("messages", "input")
_LONG = 200
"""Shortest text, in characters, whose digest is cached: every request repeats the texts of earlier ones."""


class RequestDigests:
    """Digests over all parts of a request that matter to the model's answer. Thread-safe."""

    def __init__(self, workdir: str) -> None:
        """Set up an empty cache. ``workdir``: the repository's folder."""
        self._workdir = workdir
        self._cache: dict[bytes, str] = {}

    def digest(self, method: str, path: str, body: bytes) -> str | None:
        """Return the digest of a request; None if the body is not a model request."""
        try:
            request = json.loads(body)
            if method != "POST" or not isinstance(request, dict):
                return None
            wire = wire_at(path)
            by_block = wire is not None and wire.protocol is WireProtocol.ANTHROPIC
            for name in _CONVERSATION:
                if isinstance(request.get(name), list):
                    request[name] = _order_results(request[name], by_block=by_block)
            relevant = {name: self._normalize(value) for name, value in request.items() if name not in _IRRELEVANT}
            return hashlib.sha256(_dump([path, relevant])).hexdigest()
        except (AttributeError, TypeError, ValueError, RecursionError):
            return None

    def _normalize(self, value: Any) -> Any:
        """Return the value with the volatile parts of all texts in it replaced."""
        if isinstance(value, str):
            return self._normalize_text(value)
        if isinstance(value, list):
            return [self._normalize(item) for item in value]
        if isinstance(value, dict):
            return {name: self._normalize(item) for name, item in value.items()}
        return value

    def _normalize_text(self, text: str) -> str:
        """Return a text without volatile parts; of a long text the digest of that, which is cached."""
        if len(text) < _LONG:
            return without_volatile_parts(text, self._workdir)
        key = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if (digest := self._cache.get(key)) is None:
            normalized = without_volatile_parts(text, self._workdir).encode(errors="surrogatepass")
            digest = self._cache[key] = hashlib.sha256(normalized).hexdigest()
        return digest


def _order_results(items: list[Any], *, by_block: bool) -> list[Any]:
    """Return the items of a conversation with the results of parallel calls in the order of the calls.

    Agents send results in the order in which the calls end. Other items between two model turns follow the results.

    Args:
        items: Messages of chat completions or of Anthropic's API, or items of Responses.
        by_block: Whether these are messages of content blocks; adjacent messages of one role are then merged.
    """
    if by_block:
        items = [block for message in items for block in _blocks(message)]
    positions: dict[object, int] = {}
    numbers, ordered = count(), list[Any]()
    for of_model, turn in groupby(items, _is_model_item):
        if of_model:
            part = list(turn)
            positions |= {call: next(numbers) for item in part for call in _calls(item)}
        else:
            part = sorted(turn, key=lambda item: positions.get(_answered_call(item), math.inf))
        ordered += map(_without_id, part)
    return ordered


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message's blocks, each with its role, without the cache mark, which moves to the newest block."""
    content = message.get("content") or ""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [
        {"role": message.get("role")} | {name: part for name, part in block.items() if name != "cache_control"}
        for block in blocks
    ]


def _is_model_item(item: dict[str, Any]) -> bool:
    kind = str(item.get("type"))
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _calls(item: dict[str, Any]) -> list[str]:
    """Return the ids of the calls in a message, block or item of the model."""
    ids = [call.get("id") for call in item.get("tool_calls") or []]
    call_id = item.get("call_id") or (item.get("id") if item.get("type") == "tool_use" else None)
    return [str(name) for name in (*ids, call_id) if name is not None]


def _answered_call(item: dict[str, Any]) -> str:
    return str(item.get("tool_call_id") or item.get("tool_use_id") or item.get("call_id"))


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    """Return a Responses item without its id, which Codex creates anew in every run.

    A call and its result share another id, and an item that refers to an earlier one has only its id.
    """
    if item.get("type") in ("tool_use", "item_reference"):
        return item
    return {name: part for name, part in item.items() if name != "id"}


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
