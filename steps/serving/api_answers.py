"""Responses in the shapes of the OpenAI API: a completion in one piece, or as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from swe_argo.steps.serving.answers import ParsedAnswer, ToolFormat, cut_at, parse_answer
from swe_argo.steps.serving.api_requests import ChatBody, TextBody
from swe_argo.steps.serving.chat_template import ChatTemplate
from swe_argo.steps.serving.sampler import SampledSequence


@dataclass(frozen=True)
class AnsweredCall:
    """A call that was sampled. ``weights``: the version that sampled it; ``prompt``: its token ids."""

    body: ChatBody | TextBody
    model: str
    prompt: list[int]
    sequences: list[SampledSequence]
    weights: str

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts, summed over all choices."""
        completion = sum(len(sequence.tokens) for sequence in self.sequences)
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": completion,
            "total_tokens": len(self.prompt) + completion,
        }


def chat_completion(call: AnsweredCall, template: ChatTemplate, tool_format: ToolFormat | None) -> dict[str, Any]:
    """Return the body of a response to ``POST /v1/chat/completions``."""
    assert isinstance(call.body, ChatBody)
    choices = []
    for index, sequence in enumerate(call.sequences):
        text = text_of(sequence, template)
        parsed = parse_answer(text, tool_format, call.body.offered_tools, call.body.stop or [])
        choice = {
            "index": index,
            "message": _message(parsed),
            "finish_reason": _finish(sequence, parsed),
            "logprobs": None,
        }
        if call.body.logprobs:
            choice["logprobs"] = {"content": _logprobs(sequence, template), "refusal": None}
        choices.append(_with_ids(call, sequence, choice))
    return _frame(call, "chat.completion", choices)


def text_completion(call: AnsweredCall, template: ChatTemplate) -> dict[str, Any]:
    """Return the body of a response to ``POST /v1/completions``."""
    assert isinstance(call.body, TextBody)
    choices = []
    for index, sequence in enumerate(call.sequences):
        text = cut_at(text_of(sequence, template), call.body.stop or [])
        finish = "length" if sequence.at_limit else "stop"
        choice: dict[str, Any] = {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
        if call.body.logprobs is not None and call.body.logprobs is not False:
            tokens = [template.token_text(item) for item in sequence.tokens]
            choice["logprobs"] = {"tokens": tokens, "token_logprobs": sequence.logprobs, "top_logprobs": None}
        choices.append(_with_ids(call, sequence, choice))
    return _frame(call, "text_completion", choices)


def events_of(completion: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield a completion as server-sent events: each answer in one event, because it was sampled as a whole."""
    usage, choices = completion["usage"], completion["choices"]
    chat = completion["object"] == "chat.completion"
    frame = {key: value for key, value in completion.items() if key not in ("choices", "usage")}
    frame["object"] = "chat.completion.chunk" if chat else "text_completion"
    for choice in choices:
        # One event with the whole content, then one with the finish reason.
        piece = {key: value for key, value in choice.items() if key not in ("message", "finish_reason")}
        if chat:
            message = choice["message"]
            calls = [{"index": place, **item} for place, item in enumerate(message.get("tool_calls") or [])]
            piece["delta"] = {**message, "tool_calls": calls} if calls else message
        yield event({**frame, "choices": [{**piece, "finish_reason": None}]})
        end: dict[str, Any] = {"index": choice["index"], "finish_reason": choice["finish_reason"], "logprobs": None}
        end["delta" if chat else "text"] = {} if chat else ""
        yield event({**frame, "choices": [end]})
    if with_usage:
        yield event({**frame, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def event(value: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    data: bytes = orjson.dumps(value)
    return b"data: " + data + b"\n\n"


def text_of(sequence: SampledSequence, template: ChatTemplate) -> str:
    """Return the text of an answer, up to the token that ended it."""
    # Positions of the tokens that end an answer.
    ends = [place for place, token in enumerate(sequence.tokens) if token in template.stop_ids]
    return template.decode(sequence.tokens[: ends[0]] if ends else sequence.tokens)


def _message(parsed: ParsedAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": parsed.text or (None if parsed.calls else "")}
    if parsed.reasoning:
        message["reasoning_content"] = parsed.reasoning
    if parsed.calls:
        message["tool_calls"] = parsed.calls
    return message


def _finish(sequence: SampledSequence, parsed: ParsedAnswer) -> str:
    """Return the finish reason of a choice."""
    if sequence.at_limit:
        return "length"
    return "tool_calls" if parsed.calls else "stop"


def _logprobs(sequence: SampledSequence, template: ChatTemplate) -> list[dict[str, Any]]:
    return [
        {"token": template.token_text(token), "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(sequence.tokens, sequence.logprobs, strict=True)
    ]


def _with_ids(call: AnsweredCall, sequence: SampledSequence, choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice with the token ids of its answer, if the request asks for them."""
    return choice | {"token_ids": sequence.tokens} if call.body.return_token_ids else choice


def _frame(call: AnsweredCall, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the body around the choices; the fingerprint is the version of the weights."""
    frame = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": call.model,
        "system_fingerprint": call.weights,
        "choices": choices,
        "usage": call.usage,
    }
    return frame | {"prompt_token_ids": call.prompt} if call.body.return_token_ids else frame
