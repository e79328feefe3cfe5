"""Answers as OpenAI's Responses, and its requests as chat completions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.model_server.answers import Request
from tests.model_server.wire import WireAnswer, parts

CALLS = ("function_call", "custom_tool_call")


def as_chat(request: Request) -> Request:
    """Return a request as a chat completion; items of one answer become one assistant message."""
    messages: list[dict[str, Any]] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    input_items = request["input"]
    for item in [{"role": "user", "content": input_items}] if isinstance(input_items, str) else input_items:
        kind = item.get("type", "message")
        if kind in ("function_call_output", "custom_tool_call_output"):
            messages.append({"role": "tool", "content": _text(item["output"])})
        elif kind == "message" and item["role"] != "assistant":
            messages.append({"role": item["role"], "content": _text(item["content"])})
        else:
            _add(messages, item, kind)
    names = ("model", "tools", "stream")
    return {name: request[name] for name in names if name in request} | {
        "messages": messages, "max_tokens": request.get("max_output_tokens")
    }  # fmt: skip


def _add(messages: list[dict[str, Any]], item: dict[str, Any], kind: str) -> None:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    if kind == "message":
        messages[-1]["content"] += _text(item["content"])
    if kind in CALLS:
        function = {"name": item["name"], "arguments": item.get("arguments", item.get("input"))}
        messages[-1].setdefault("tool_calls", []).append({"id": item["call_id"], "function": function})


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _items(reply: WireAnswer) -> list[dict[str, Any]]:
    answer = reply.answer
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append({"type": "reasoning", "id": f"rs_{reply.id}", "encrypted_content": f"sealed-{reply.id}",
                      "summary": [{"type": "summary_text", "text": answer.reasoning}]})  # fmt: skip
    if text := answer.text:
        items.append(_message(reply, {"type": "output_text", "text": text, "annotations": [], "logprobs": []}))
    if answer.refusal:
        items.append(_message(reply, {"type": "refusal", "refusal": answer.refusal}))
    custom = [tool["name"] for tool in reply.request.get("tools") or [] if tool.get("type") == "custom"]
    for place, call in enumerate(answer.calls):
        about = {"id": f"fc_{reply.id}_{place}", "call_id": call.id, "name": call.name, "status": "completed"}
        kind = ("custom_tool_call", "input") if call.name in custom else ("function_call", "arguments")
        items.append({"type": kind[0], kind[1]: call.text} | about)
    return items


def _message(reply: WireAnswer, part: dict[str, Any]) -> dict[str, Any]:
    about = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "status": "completed"}
    return about | {"content": [part]}


def response(reply: WireAnswer) -> dict[str, Any]:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish_reason)
    used = {
        "input_tokens": reply.prompt_tokens, "input_tokens_details": {"cached_tokens": reply.answer.cached_tokens},
        "output_tokens": reply.completion_tokens, "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }  # fmt: skip
    return {
        "id": f"resp_{reply.id}", "object": "response", "created_at": int(time.time()), "error": None,
        "status": "incomplete" if cut else "completed", "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None, "metadata": {}, "model": reply.request["model"], "output": _items(reply),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0,
        "usage": used,
    }  # fmt: skip


def response_events(reply: WireAnswer) -> Iterator[dict[str, Any]]:
    for number, event in enumerate(_events(reply)):
        yield event | {"sequence_number": number}


def _events(reply: WireAnswer) -> Iterator[dict[str, Any]]:
    whole = response(reply)
    start = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": start}
    yield {"type": "response.in_progress", "response": start}
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        empty = item | {"status": "in_progress"} | {key: "" for key in ("arguments", "input") if key in item}
        yield {"type": "response.output_item.added", "output_index": place,
               "item": empty | {key: [] for key in ("content", "summary") if key in item}}  # fmt: skip
        for name, key, text, inner in _spoken(item):
            index = {"content_index": inner["content_index"]} if "content_index" in inner else {}
            if index:
                part = {"type": name, key: "", "annotations": [], "logprobs": []}
                yield {"type": "response.content_part.added", "part": part, **at, **index}
            for piece in parts(text):
                yield {"type": f"response.{name}.delta", "delta": piece, **at, **inner}
            yield {"type": f"response.{name}.done", key: text, **at, **inner}
            if index:
                yield {"type": "response.content_part.done", "part": item["content"][0], **at, **index}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _spoken(item: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    if item["type"] == "function_call":
        yield "function_call_arguments", "arguments", item["arguments"], {"name": item["name"]}
    if item["type"] == "custom_tool_call":
        yield "custom_tool_call_input", "input", item["input"], {}
    for index, part in enumerate(item.get("content") or []):
        key = "text" if part["type"] == "output_text" else "refusal"
        yield part["type"], key, part[key], {"content_index": index, "logprobs": []}


def error_event(body: Any) -> dict[str, Any]:
    detail = body["error"]
    failed = {"id": "resp_0", "object": "response", "status": "failed", "output": [],
              "error": {"code": detail.get("type") or "server_error", "message": detail["message"]}}  # fmt: skip
    return {"type": "response.failed", "response": failed}
