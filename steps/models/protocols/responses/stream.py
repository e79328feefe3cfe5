"""Streaming of Responses: writing and assembly of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from swe_argo.steps.models.protocols.wire import Body, event

ENDS = ("response.completed", "response.incomplete", "response.failed")
"""Events that contain the complete response."""


def events(answer: Body, request: Body) -> bytes:  # noqa: ARG001 - signature shared by all protocols
    """Return a response as a stream, with one delta per text."""
    numbered = (item_event | {"sequence_number": number} for number, item_event in enumerate(_events(answer)))
    return b"".join(event(item_event, item_event["type"]) for item_event in numbered)


def failed(code: str, message: str) -> bytes:
    """Return a stream that ends with an error; some agents read its code only there."""
    response = {"id": "resp_none", "object": "response", "created_at": 0, "status": "failed", "output": []}
    error = {"code": code, "message": message}
    return event({"type": ENDS[2], "sequence_number": 0, "response": response | {"error": error}}, ENDS[2])


def _events(answer: Body) -> Iterator[Body]:
    """Yield the events of a response in the order in which OpenAI's API sends them."""
    started = answer | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place}
        yield {"type": "response.output_item.added", "item": _empty(item), **at}
        yield from (item_event | at | {"item_id": item.get("id")} for item_event in _inner(item))
        yield {"type": "response.output_item.done", "item": item, **at}
    yield {"type": f"response.{answer.get('status') or 'completed'}", "response": answer}


def _empty(item: Body) -> Body:
    """Return an item in its initial state."""
    texts: Body = {name: "" for name in ("arguments", "input") if name in item}
    lists: Body = {name: [] for name in ("content", "summary") if item.get(name)}
    return item | texts | lists | ({"status": "in_progress"} if "status" in item else {})


def _inner(item: Body) -> Iterator[Body]:
    """Yield the events for the texts inside an item: arguments, summaries and contents."""
    if item["type"] == "function_call":
        yield from _text_events("function_call_arguments", "arguments", item["arguments"], {"name": item["name"]})
    if item["type"] == "custom_tool_call":
        yield from _text_events("custom_tool_call_input", "input", item["input"], {})
    for index, part in enumerate(item.get("summary") or []):
        at = {"summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **at}
        yield from _text_events("reasoning_summary_text", "text", part["text"], at)
        yield {"type": "response.reasoning_summary_part.done", "part": part, **at}
    for index, part in enumerate(item.get("content") or []):
        name = "refusal" if part["type"] == "refusal" else "text"
        logprobs = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
        at = {"content_index": index}
        yield {"type": "response.content_part.added", "part": part | {name: ""}, **at}
        yield from _text_events(part["type"], name, part[name], at | logprobs)
        yield {"type": "response.content_part.done", "part": part, **at}


def _text_events(kind: str, name: str, text: str, about: Body) -> Iterator[Body]:
    """Yield the whole text as one delta, and the event that ends it."""
    yield {"type": f"response.{kind}.delta", "delta": text, **about}
    yield {"type": f"response.{kind}.done", name: text, **about}


class ResponseAssembly:
    """The events of one streamed answer; the last one contains the complete response."""

    def __init__(self) -> None:
        self._response: Body = {}
        self._items: list[Body] = []
        """Complete items, in case the last event omits them."""
        self.has_output = False
        self.is_complete = False

    def add(self, data: str) -> Body | None:
        """Add an event; return the error that it contains, if any. Raises ValueError if it is not a JSON object."""
        if data.strip() == "[DONE]":
            return None
        message: Any = json.loads(data)
        kind = message.get("type") or ""
        if kind == "error" or (message.get("error") and not kind):
            return {"error": message.get("error") or message}
        if kind in ENDS:
            self._response, self.is_complete = dict(message["response"]), True
            return {"error": self._response["error"]} if self._response.get("error") else None
        if kind == "response.output_item.done":
            self._items.append(message["item"])
        self.has_output = self.has_output or kind.endswith(".delta")
        return None

    def build_body(self) -> Body:
        """Return the response; items that the last event omits come from the earlier events."""
        return self._response | {"output": self._response.get("output") or self._items}
