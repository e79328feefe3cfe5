"""Answers as Anthropic's messages, and its requests as chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.model_server.answers import Request
from tests.model_server.wire import WireAnswer, parts

STOPPED = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def as_chat(request: Request) -> Request:
    """Return a request as a chat completion, for scripts and token counts."""
    messages: list[dict[str, Any]] = []
    if system := request.get("system"):
        messages.append({"role": "system", "content": _text(system)})
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        calls = [_chat_call(block) for block in blocks if block["type"] == "tool_use"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        messages += [{"role": "tool", "content": _text(result.get("content") or "")} for result in results]
        texts = [block for block in blocks if block["type"] == "text"]
        if texts or calls or not results:
            chat = {"role": message["role"], "content": _text(texts)}
            messages.append(chat | ({"tool_calls": calls} if calls else {}))
    names = ("model", "tools", "stream", "max_tokens")
    return {name: request[name] for name in names if name in request} | {
        "messages": messages, "stop": request.get("stop_sequences")
    }  # fmt: skip


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _chat_call(block: dict[str, Any]) -> dict[str, Any]:
    return {"id": block["id"], "function": {"name": block["name"], "arguments": json.dumps(block["input"])}}


def _stopped(reply: WireAnswer) -> str:
    return "refusal" if reply.answer.refusal else STOPPED.get(reply.finish_reason, reply.finish_reason)


def _usage(reply: WireAnswer) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens - reply.answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.answer.cached_tokens,
        "output_tokens": reply.completion_tokens,
    }


def _blocks(reply: WireAnswer) -> list[dict[str, Any]]:
    answer, blocks = reply.answer, []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": f"signed-{reply.id}"})
    if text := answer.text or answer.refusal:
        blocks.append({"type": "text", "text": text})
    for call in answer.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.text)})
    return blocks


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:  # a script for chat completions: here no model can say such a thing
        return {"raw": arguments}


def message(reply: WireAnswer) -> dict[str, Any]:
    about = {"id": reply.id, "type": "message", "role": "assistant", "model": reply.request["model"]}
    end = {"stop_reason": _stopped(reply), "stop_sequence": None, "usage": _usage(reply)}
    return about | {"content": _blocks(reply)} | end


def message_events(reply: WireAnswer) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed answer in small pieces, with a ping like Anthropic's server."""
    start = message(reply) | {"content": [], "stop_reason": None, "usage": _usage(reply) | {"output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(_blocks(reply)):
        kind = block["type"]
        key, delta, text = {
            "text": ("text", "text_delta", block.get("text", "")),
            "thinking": ("thinking", "thinking_delta", block.get("thinking", "")),
            "tool_use": ("partial_json", "input_json_delta", json.dumps(block.get("input"))),
        }[kind]
        empty: dict[str, Any] = (
            {"input": {}} if kind == "tool_use" else {key: ""} | ({"signature": ""} if kind == "thinking" else {})
        )
        yield {"type": "content_block_start", "index": index, "content_block": block | empty}
        for part in parts(text):
            yield {"type": "content_block_delta", "index": index, "delta": {"type": delta, key: part}}
        if kind == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield {"type": "content_block_delta", "index": index, "delta": signed}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": _stopped(reply), "stop_sequence": None},
           "usage": {"output_tokens": reply.completion_tokens}}  # fmt: skip
    yield {"type": "message_stop"}


def error_body(status: int, body: Any) -> Any:
    """Return an error in Anthropic's form; one in another form than OpenAI's stays."""
    if not isinstance(body, dict) or not (detail := body.get("error") or body).get("message"):
        return body
    kind = KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": detail["message"]}, "request_id": "req_0"}
