"""Answers of the model server, and its faults: the ways in which endpoints fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Request = dict[str, Any]
"""The body of a chat completion."""


@dataclass(frozen=True)
class Call:
    """A call of a tool; ``arguments`` may be invalid JSON. ``id``: by default a fresh one."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Answer:
    """An answer of the model. Token counts that are None are counted from the text."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """reasoning_content for DeepSeek, SGLang and older vLLM; reasoning for newer vLLM and OpenRouter."""
    refusal: str | None = None
    finish_reason: str | None = None
    """By default tool_calls if there are calls, else stop."""
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    """For ``usage.cost``, a field of OpenRouter and some LiteLLM proxies."""
    usage: bool = True
    choices: bool = True
    """False: an answer that is billed, without choices."""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    """An error, or an incomplete answer.

    error: ``status`` with ``body`` (JSON or text). hang: no answer. drop: the connection is closed before any answer.
    drip: a stream that repeats the text of ``answer`` for ever; blanks if no stream is requested. truncate: half of
    ``answer``, then the connection is closed. stream_error: half of a stream, then an error event with ``body``.
    """

    status: int = 500
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    how: Literal["error", "hang", "drop", "drip", "truncate", "stream_error"] = "error"
    answer: Answer = Answer("cut off " * 40)
    delay_s: float = 0.0


Script = Callable[[Request], Answer | Fault]


def call(name: str, **arguments: Any) -> Answer:
    return Answer(calls=(Call(name, arguments),))


def function_text(name: str, thought: str = "", **parameters: str) -> Answer:
    """Return an answer that calls one tool in the text format of R2E-Gym and OpenHands."""
    inside = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in parameters.items())
    return Answer(f"{thought}\n<function={name}>\n{inside}</function>".lstrip())


def error(status: int, message: str, code: str | None = None, type_: str = "", param: str | None = None) -> Fault:
    return Fault(status, {"error": {"message": message, "type": type_, "param": param, "code": code}})


def rate_limited(retry_after: str | float | None = 0) -> Fault:
    """Return a 429 that passes; ``retry_after`` in seconds or as an HTTP date."""
    fault = error(429, "Rate limit reached for requests", "rate_limit_exceeded", "requests")
    return fault if retry_after is None else replace(fault, headers={"Retry-After": str(retry_after)})


def _vllm(message: str) -> Fault:
    return Fault(400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400})


_TOO_LONG = "This model's maximum context length is 8192 tokens. However, "
_INVALID, _QUOTA = "invalid_request_error", "insufficient_quota"
SERVER_ERROR = error(500, "The server had an error while processing your request.", None, "server_error")
UNAVAILABLE = Fault(503, "upstream connect error or disconnect/reset before headers", {"Content-Type": "text/plain"})
BAD_GATEWAY = Fault(502, "<html><body><h1>502 Bad Gateway</h1></body></html>", {"Content-Type": "text/html"})
HANG, DROP, DRIP, TRUNCATED = Fault(how="hang"), Fault(how="drop"), Fault(how="drip"), Fault(how="truncate")
_ENGINE = {"message": "engine died", "type": "server_error", "code": 500}
STREAM_ERROR = Fault(500, {"error": _ENGINE}, how="stream_error")
BAD_KEY = error(401, "Incorrect API key provided.", "invalid_api_key", _INVALID)
NO_CREDIT = error(402, "Insufficient credits. Add more to your account.", "402")
NO_QUOTA = error(429, "You exceeded your current quota, please check your plan.", _QUOTA, _QUOTA)
UNKNOWN_MODEL = error(404, "The model `nobody` does not exist.", "model_not_found", _INVALID)
CONTEXT_OPENAI = error(
    400,
    f"{_TOO_LONG}your messages resulted in 9001 tokens. Please reduce the length of the messages.",
    "context_length_exceeded",
    _INVALID,
    "messages",
)
CONTEXT_VLLM = _vllm(
    f"{_TOO_LONG}you requested 9001 tokens (8001 in the messages, 1000 in the completion). Please reduce the length of "
    "the messages or completion."
)
TOOLS_REFUSED_VLLM = _vllm('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
CONTENT_FILTER_AZURE = error(
    400, "The response was filtered due to the prompt triggering the content policy.", "content_filter", "", "prompt"
)
BAD_ARGUMENTS = Answer(calls=(Call("execute_bash", '{"command": "ls'),))
EMPTY = Answer("")
NO_CHOICES = Answer(choices=False)
REFUSAL = Answer(refusal="I cannot help with that.")
FILTERED = Answer("", finish_reason="content_filter")
FAULTS: dict[str, Fault | Answer] = {
    name.lower(): value for name, value in list(globals().items()) if isinstance(value, Fault | Answer)
}
FAULTS["rate_limited"] = rate_limited()
"""The answers above by name, for scripts in files."""
