"""A streamed answer put together: server-sent events into the body that the same answer would have in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_FIELDS = ("data:", "event:", "id:", "retry:", ":")
"""With which a line of a stream begins."""


def is_event_stream(beginning: bytes) -> bool:
    """Whether an answer that begins so is one, whatever it is labelled."""
    return beginning.lstrip().decode("utf-8", "replace").startswith(_FIELDS)


def stream_lines(parts: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream: they end where it says so, not at the other line ends that Unicode has."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole)
    yield rest.decode("utf-8", "replace")


def stream_events(lines: Iterable[str], odd: list[str]) -> Iterator[str]:
    """The data of each event (WHATWG server-sent events); comments, by which proxies keep a line open, are skipped.

    Lines that are none of a stream are added to ``odd``: some endpoints send an answer in one piece under its label.
    """
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line.strip() and data:
            yield "\n".join(data)
            data = []
        elif not line.startswith(_FIELDS):
            odd.append(line)
    if data:
        yield "\n".join(data)


class Assembly:
    """The chunks of one answer so far."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._at: dict[Any, int] = {}
        self._logprobs: list[Any] | None = None
        self._ids: list[int] | None = None
        self.finish_reason: str | None = None
        self.begun = False
        """Whether the model has said anything."""
        self.done = False
        """Whether all was said: there was a finish reason, or the end mark."""

    def add(self, data: str) -> dict[str, Any] | None:
        """Take an event; an error that it tells of is handed back. Raises ValueError where it is no JSON object."""
        if data.strip() == "[DONE]":
            self.done = True
            return None
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("an event is no object")  # noqa: TRY004 - as json.loads says it of what is no JSON
        if chunk.get("error"):
            return chunk
        for name in ("id", "model", "system_fingerprint", "usage", "prompt_token_ids"):
            if chunk.get(name) is not None:
                self._body[name] = chunk[name]
        for choice in chunk.get("choices") or []:
            self._choice(choice)
        return None

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                self._message[name] = (self._message.get(name) or "") + delta[name]
                self.begun = self.begun or bool(delta[name])
        for call in delta.get("tool_calls") or []:
            self._call(call)
        if delta.get("function_call"):  # as OpenAI had it before tools
            self._call({"function": delta["function_call"]})
        if (logprobs := (choice.get("logprobs") or {}).get("content")) is not None:
            self._logprobs = (self._logprobs or []) + logprobs
        if choice.get("token_ids") is not None:
            self._ids = (self._ids or []) + choice["token_ids"]
        if choice.get("prompt_token_ids") is not None:
            self._body["prompt_token_ids"] = choice["prompt_token_ids"]
        if choice.get("finish_reason"):
            self.finish_reason, self.done = choice["finish_reason"], True

    def _call(self, piece: dict[str, Any]) -> None:
        # Some endpoints number every call 0: another id is another call.
        self.begun = True
        index, name = piece.get("index", 0), piece.get("id")
        place = self._at.get(index)
        if place is None or (name and self._calls[place]["id"] not in ("", name)):
            place = self._at[index] = len(self._calls)
            self._calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = self._calls[place], piece.get("function") or {}
        call["id"] = call["id"] or name or ""
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def whole(self) -> dict[str, Any]:
        """What the endpoint would have answered without streaming."""
        message = self._message | ({"tool_calls": self._calls} if self._calls else {})
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        if self._logprobs is not None:
            choice["logprobs"] = {"content": self._logprobs}
        if self._ids is not None:
            choice["token_ids"] = self._ids
        return self._body | {"choices": [choice] if self.begun or self.finish_reason else []}
