"""Answers as chat completions, in one piece or as a stream of events."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tests.model_server.answers import Answer, Request

START, END = 1, 2
"""Ids of the tokens before and after a message."""


@lru_cache(maxsize=20_000)
def tokens(text: str) -> tuple[int, ...]:
    """Return token ids for the words of a text and the characters between them."""
    return tuple(100 + zlib.crc32(word.encode("utf-8", "replace")) % 50_000 for word in _words(text))


@lru_cache(maxsize=20_000)
def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\s*\w{1,8}|\s*[^\w\s]|\s+", text))


def _spoken(message: dict[str, Any]) -> str:
    """Return a message in text, like a chat template."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    calls = "".join(f"<{c['function']['name']} {c['function']['arguments']}>" for c in message.get("tool_calls") or [])
    return f"{content}{calls}"


def prompt_ids(request: Request) -> list[int]:
    """Return the prompt's token ids; a later turn's begin with those of the earlier prompt and completion."""
    ids = list(tokens(json.dumps(request["tools"]))) if request.get("tools") else []
    for message in request["messages"]:
        ids += [START, *tokens(message["role"]), *tokens(_spoken(message)), END]
    return [*ids, START, *tokens("assistant")]


def logprob(token_id: int) -> float:
    return -((token_id % 97) + 1) / 128


@dataclass(frozen=True)
class WireAnswer:
    """A complete answer: the source of both wire forms and of the counts."""

    answer: Answer
    request: Request
    id: str
    prompt: list[int]
    reasoning_ids: list[int]
    spoken_ids: list[int]
    finish_reason: str

    @property
    def completion(self) -> list[int]:
        return [*self.reasoning_ids, *self.spoken_ids]

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt) if self.answer.prompt_tokens is None else self.answer.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        count = self.answer.completion_tokens
        return len(self.completion) if count is None else count

    @property
    def reasoning_tokens(self) -> int:
        count = self.answer.reasoning_tokens
        return len(self.reasoning_ids) if count is None else count

    @property
    def usage(self) -> dict[str, Any]:
        used: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.answer.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }
        return used if self.answer.cost_usd is None else used | {"cost": self.answer.cost_usd}


def say(answer: Answer, request: Request, number: int) -> WireAnswer:
    """Return the answer to this request: cut at its stop words and token limit, with fresh call ids."""
    finish = "tool_calls" if answer.calls else "stop"
    text = answer.text
    if text is not None:
        stops = request.get("stop") or []
        ends = [text.find(stop) for stop in ([stops] if isinstance(stops, str) else stops)]
        text = text[: min((end for end in ends if end >= 0), default=len(text))]
        most = request.get("max_completion_tokens") or request.get("max_tokens")
        if most is not None and len(_words(text)) > most:
            text, finish = "".join(_words(text)[:most]), "length"
    calls = tuple(replace(c, id=c.id or f"call_{number:x}_{place}") for place, c in enumerate(answer.calls))
    answer = replace(answer, text=text, calls=calls)
    spoken = _spoken({"content": text or answer.refusal, "tool_calls": [_call(c) for c in calls]})
    return WireAnswer(
        answer=answer,
        request=request,
        id=f"chatcmpl-{number}",
        prompt=prompt_ids(request),
        reasoning_ids=list(tokens(answer.reasoning)),
        spoken_ids=[*tokens(spoken), END] if answer.choices else [],
        finish_reason=answer.finish_reason or finish,
    )


def _call(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}


def _logprobs(ids: list[int]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"token": f"t{i}", "logprob": logprob(i), "bytes": None, "top_logprobs": []} for i in ids
    ]
    return {"content": content, "refusal": None}


def _frame(reply: WireAnswer, kind: str) -> dict[str, Any]:
    return {"id": reply.id, "object": kind, "created": int(time.time()), "model": reply.request["model"]}


def completion(reply: WireAnswer) -> dict[str, Any]:
    answer, request = reply.answer, reply.request
    body = _frame(reply, "chat.completion") | {"choices": []}
    if answer.usage:
        body["usage"] = reply.usage
    if request.get("return_token_ids"):
        body["prompt_token_ids"] = reply.prompt
    if not answer.choices:
        return body
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.calls:
        message["tool_calls"] = [_call(c) for c in answer.calls]
    if answer.reasoning:
        message[answer.reasoning_field] = answer.reasoning
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reply.finish_reason, "logprobs": None}
    if request.get("logprobs"):
        choice["logprobs"] = _logprobs(reply.completion)
    if request.get("return_token_ids"):
        choice["token_ids"] = reply.completion
    body["choices"] = [choice]
    return body


def events(reply: WireAnswer) -> Iterator[dict[str, Any]]:
    answer, request = reply.answer, reply.request
    frame = {"id": reply.id, "object": "chat.completion.chunk", "created": int(time.time()), "model": request["model"]}

    def chunk(delta: dict[str, Any], ids: list[int] | None = None, finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        if ids and request.get("logprobs"):
            choice["logprobs"] = _logprobs(ids)
        if ids and request.get("return_token_ids"):
            choice["token_ids"] = ids
        return frame | {"choices": [choice]}

    if answer.choices:
        first = chunk({"role": "assistant", "content": ""})
        yield first | ({"prompt_token_ids": reply.prompt} if request.get("return_token_ids") else {})
        if answer.reasoning:
            yield chunk({answer.reasoning_field: answer.reasoning}, reply.reasoning_ids)
        ids = reply.spoken_ids
        for part in parts(answer.text or ""):
            chunk_ids, ids = ids[: len(_words(part))], ids[len(_words(part)) :]
            yield chunk({"content": part}, chunk_ids)
        if answer.refusal:
            yield chunk({"refusal": answer.refusal})
        for place, call in enumerate(answer.calls):
            call_head = _call(call) | {"index": place}
            yield chunk({"tool_calls": [call_head | {"function": {"name": call.name, "arguments": ""}}]})
            for part in parts(call.text):
                yield chunk({"tool_calls": [{"index": place, "function": {"arguments": part}}]})
        yield chunk({}, ids, reply.finish_reason)
    if answer.usage and (request.get("stream_options") or {}).get("include_usage"):
        yield frame | {"choices": [], "usage": reply.usage}


def parts(text: str) -> Iterator[str]:
    """Yield a text some words at a time, like a model that streams."""
    words = _words(text)
    for start in range(0, len(words), 12):
        yield "".join(words[start : start + 12])
