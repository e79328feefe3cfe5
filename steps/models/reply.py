"""What comes back from a model: an answer, or the reason why there is none that is the agent's own doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from swe_argo.steps.contracts.trajectory import Metrics, StopReason, Usage

Message = dict[str, Any]
"""A chat message as the OpenAI API has it."""
ToolDefinition = dict[str, Any]
"""``{"type": "function", "function": {"name", "description", "parameters"}}``."""

REASONING = ("reasoning_content", "reasoning")
"""Fields of an assistant's message that servers with a reasoning parser send, and most of them want back."""
_KNOWN = {
    "message": ("role", "content", "tool_calls", "function_call", "refusal"),
    "call": ("id", "type", "function"),
    "function": ("name", "arguments"),
}
"""Part of a chat completion -> its fields that the client reads and writes itself."""
REFUSED_FIELDS = ("annotations", "audio", "index")
"""Fields of answers that requests have no place for: OpenAI's sources and speech (its reference of chat completions),
and the place of a call, which vLLM refuses for Mistral's models (mistralai/mistral-common#165)."""


def fields_to_return(part: Mapping[str, Any], kind: Literal["message", "call", "function"]) -> dict[str, Any]:
    """Return the fields of an assistant's message, of a call or of its function that the client does not understand.

    They go back unchanged: without signatures of thoughts (Gemini, OpenRouter, LiteLLM) or a thought, even an empty one
    (DeepSeek), the next request is refused.
    """
    return {name: value for name, value in part.items() if name not in _KNOWN[kind] and name not in REFUSED_FIELDS}


@dataclass(frozen=True)
class RequestedCall:
    """A call of a tool as the model wrote it: ``arguments`` is JSON text, perhaps malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """An answer. ``message`` is what joins the conversation: the assistant's message, ready to be sent back."""

    text: str
    metrics: Metrics
    message: Message
    reasoning: str = ""
    calls: tuple[RequestedCall, ...] = ()


class NoReplyError(Exception):
    """The endpoint answered, but with nothing to go on with, for a reason that is the agent's own."""

    def __init__(self, reason: StopReason, detail: str = "", metrics: Metrics | None = None) -> None:
        self.reason = reason
        """context_overflow, refusal, content_filter or call_timeout."""
        self.detail = detail
        self.metrics = metrics
        """What the call took, where it was billed."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class Model(Protocol):
    """A model that can be asked."""

    name: str

    @property
    def usage(self) -> Usage:
        """What every request took, those that failed included."""

    @property
    def lost_s(self) -> float:
        """Seconds lost so far to the endpoint's failures and to waiting for a turn: not the agent's time."""

    def ask(
        self,
        messages: list[Message],
        *,
        tools: list[ToolDefinition] | None = None,
        temperature: float | None = None,
        timeout_s: float | None = None,
        stop: list[str] | None = None,
    ) -> Reply:
        """One answer. ``temperature`` and ``timeout_s`` (seconds for all, retries included) narrow what the spec says.

        Raises NoReplyError; InfraError (class model) when all retries failed; ConfigError, class model_access for a
        dead key or a used-up quota, class config for a request that the endpoint refuses.
        """
