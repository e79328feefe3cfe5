"""Bodies of OpenAI API requests, parsed and checked: unsupported fields are rejected, never ignored."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

MAX_CHOICES = 128
"""Maximum number of answers to one request, as in OpenAI's API."""
B = TypeVar("B", bound=BaseModel)


class ApiError(Exception):
    """An error response in place of a completion, in the format of OpenAI's errors."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.retry_after_s: int | None = None
        """Seconds after which a retry may succeed; None: no such hint."""

    def body(self) -> dict[str, Any]:
        """Return the error as JSON."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class _SamplingBody(BaseModel):
    """The fields of both kinds of completion. Fields without effect here (user, metadata, store) are ignored."""

    model_config = ConfigDict(extra="ignore")
    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: int | None = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = None

    # Other values of these fields would change the answer, which this server does not support.
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _wrap_single_stop(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _refuse_empty_stop(cls, value: list[str] | None) -> list[str] | None:
        if value and "" in value:
            raise ValueError("a stop text must not be empty")
        return value


class _ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: Literal["text"]


class ChatBody(_SamplingBody):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    response_format: _ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] = {}

    @field_validator("messages")
    @classmethod
    def _plain(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_plain_message(message) for message in messages]

    @property
    def limit(self) -> int | None:
        """The most tokens of an answer."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the model is offered."""
        return None if self.tool_choice == "none" else self.tools or None


class TextBody(_SamplingBody):
    """The body of ``POST /v1/completions``: a text, or the token ids of a prompt."""

    prompt: str | list[int]
    logprobs: Annotated[int, Field(ge=0, le=1)] | bool | None = None
    echo: Literal[False] | None = None
    best_of: Annotated[int, Field(ge=1, le=1)] | None = None
    suffix: Annotated[str, Field(max_length=0)] | None = None


def read_body(kind: type[B], body: bytes) -> B:
    """Parse the request in ``body``. Raises ApiError naming the parameter that is wrong or not supported."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"][:1])) or None
        raise ApiError(400, f"{param or 'body'}: {first['msg']}; this server does not accept it", param=param) from None


def _plain_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: content is text, arguments of calls are objects."""
    plain = {**message, "content": _text(message.get("content"))}
    if message.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(call) for call in message["tool_calls"]]
    return plain


def _text(content: Any) -> str:
    """Return a message's text: one line per part, if it has parts. Raises ValueError if a part is not text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    if any(not isinstance(text, str) for text in texts):
        raise ValueError("only text can be read")
    return "\n".join(str(text) for text in texts)


def _plain_call(call: Any) -> dict[str, Any]:
    """Return a call with its arguments as an object. Raises ValueError if it is not a function call."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        raise ValueError("a tool call is not a function call")  # noqa: TRY004 - pydantic expects it
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"unreadable": arguments}
    return {**call, "function": {**call["function"], "arguments": arguments or {}}}
