"""Assembly of streamed answers: merges server-sent events into the body of a non-streamed answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_FIELDS = ("data:", "event:", "id:", "retry:", ":")
"""Line prefixes of an event stream."""


def is_event_stream(beginning: bytes) -> bool:
    """Return whether a body with this beginning is an event stream, whatever its content type."""
    return beginning.lstrip().decode("utf-8", "replace").startswith(_FIELDS)


def stream_lines(parts: Iterable[bytes]) -> Iterator[str]:
    """Return the lines of a stream, split at line feeds only and not at Unicode's other line ends."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole)
    yield rest.decode("utf-8", "replace")


def stream_events(lines: Iterable[str], other_lines: list[str]) -> Iterator[str]:
    """Yield the data of each event (WHATWG server-sent events), without the comments that keep a connection open.

    Other lines are appended to ``other_lines``: some endpoints label a plain answer as a stream.
    """
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line.strip() and data:
            yield "\n".join(data)
            data = []
        elif not line.startswith(_FIELDS):
            other_lines.append(line)
    if data:
        yield "\n".join(data)


_REPLACED_FIELDS = ("id", "type", "name", "format", "index")
"""Fields of message parts that a delta replaces; some endpoints repeat them in every chunk."""


def merge_delta(current: Any, delta: Any, name: str = "") -> Any:
    """Return the value of a message's field ``name`` merged with a delta.

    Lists are merged by index, objects by key, texts are appended; null and empty deltas change nothing. Content may
    change from text to a list of parts, and arguments sent as an object are complete.
    """
    if isinstance(delta, list) and (current is None or isinstance(current, str)):
        current = _parts(current)
    elif isinstance(current, list) and isinstance(delta, str):
        delta = _parts(delta)
    if current is None or (delta is None or delta in ("", {})):
        return delta if current is None else current
    if isinstance(current, list) and isinstance(delta, list):
        return _merge_lists(current, delta)
    if isinstance(current, dict) and isinstance(delta, dict) and name != "arguments":
        return current | {key: merge_delta(current.get(key), value, key) for key, value in delta.items()}
    return (
        current + delta
        if isinstance(current, str) and isinstance(delta, str) and name not in _REPLACED_FIELDS
        else delta
    )


def _parts(content: str | None) -> list[Any]:
    return [{"type": "text", "text": content}] if content else []


def _merge_lists(current: list[Any], delta: list[Any]) -> list[Any]:
    """Return the list with each piece merged into the element that it continues, else appended."""
    merged = list(current)
    for position, piece in enumerate(delta):
        # A single piece without an index continues the last element; several are matched by position.
        place = _find_element(merged, piece, position if len(delta) > 1 else len(merged) - 1)
        if place is None:
            merged.append(piece)
        else:
            merged[place] = merge_delta(merged[place], piece)
    return merged


def _find_element(merged: list[Any], piece: Any, position: int) -> int | None:
    """Return the index of the element that a piece continues (by its index, else ``position``); None for a new one.

    A different type or id under the same index means a new element (OpenRouter's summaries and encrypted thoughts,
    servers that number every call 0). LiteLLM's thinking blocks have no index: a block ends with its signature.
    """
    if not isinstance(piece, dict):
        return None
    if (index := piece.get("index")) is not None:
        places = [place for place, part in enumerate(merged) if _is_at(part, index, place)]
    else:
        places = [position] if 0 <= position < len(merged) and isinstance(merged[position], dict) else []
    if not places:
        return None
    element = merged[places[-1]]
    if index is None and element.get("signature"):
        return None if any(piece[key] for key in piece if key not in (*_REPLACED_FIELDS, "signature")) else places[-1]
    differing = {name for name in ("id", "type") if piece.get(name) and element.get(name, piece[name]) != piece[name]}
    if isinstance(piece.get("function"), dict) and not piece["function"].get("name"):
        differing.discard("id")  # some servers send a new id in every chunk of one call
    return None if differing else places[-1]


def _is_at(element: Any, index: Any, place: int) -> bool:
    """Return whether an element has this index; without an index of its own, its place in the list counts."""
    return isinstance(element, dict) and bool(element.get("index", place) == index)


class Assembly:
    """The merged chunks of one streamed answer."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._logprobs: list[Any] | None = None
        self._ids: list[int] | None = None
        self.finish_reason: str | None = None
        self.has_output = False
        """Whether the model has produced any output."""
        self.is_complete = False
        """Whether the answer is complete: it had a finish reason or the end mark."""

    def add(self, data: str) -> dict[str, Any] | None:
        """Add an event; return the error that it contains, if any. Raises ValueError if it is not a JSON object."""
        if data.strip() == "[DONE]":
            self.is_complete = True
            return None
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("an event is not an object")  # noqa: TRY004 - same type as json.loads raises for invalid JSON
        if chunk.get("error"):
            return chunk
        for name in ("id", "model", "system_fingerprint", "usage", "prompt_token_ids"):
            if chunk.get(name) is not None:
                self._body[name] = chunk[name]
        for choice in chunk.get("choices") or []:
            self._merge_choice(choice)
        return None

    def _merge_choice(self, choice: dict[str, Any]) -> None:
        """Merge the delta of one choice; all choices form one message. Raises TypeError if a tool call is malformed."""
        delta = {name: value for name, value in (choice.get("delta") or {}).items() if name != "role"}
        if called := delta.pop("function_call", None):  # OpenAI's form before tools
            delta["tool_calls"] = [{"index": 0, "function": called}]
        for piece in delta.get("tool_calls") or []:
            if not isinstance(piece, dict) or not isinstance(piece.get("function") or {}, dict):
                raise TypeError("a call is not an object")
        self._message = merge_delta(self._message, delta)
        self.has_output = self.has_output or any(delta.values())
        if (logprobs := (choice.get("logprobs") or {}).get("content")) is not None:
            self._logprobs = (self._logprobs or []) + logprobs
        if choice.get("token_ids") is not None:
            self._ids = (self._ids or []) + choice["token_ids"]
        if choice.get("prompt_token_ids") is not None:
            self._body["prompt_token_ids"] = choice["prompt_token_ids"]
        if choice.get("finish_reason"):
            self.finish_reason, self.is_complete = choice["finish_reason"], True

    def build_body(self) -> dict[str, Any]:
        """Return the body of the equivalent answer without streaming."""
        message = dict(self._message)
        if calls := message.pop("tool_calls", None):
            message["tool_calls"] = [_call(call) for call in calls]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        if self._logprobs is not None:
            choice["logprobs"] = {"content": self._logprobs}
        if self._ids is not None:
            choice["token_ids"] = self._ids
        return self._body | {"choices": [choice] if self.has_output or self.finish_reason else []}


def _call(merged: dict[str, Any]) -> dict[str, Any]:
    """Return a call in the form of a non-streamed answer: all fields, no index."""
    call = {"id": "", "type": "function"} | {name: value for name, value in merged.items() if name != "index"}
    return call | {"function": {"name": "", "arguments": ""} | (merged.get("function") or {})}
