"""What comes back from a model: an answer, or the reason why there is none that is the agent's own doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from steps.contracts.trajectory import Metrics, StopReason, Usage

Message = dict[str, Any]
"""A chat message as the OpenAI API has it."""
ToolDefinition = dict[str, Any]
"""``{"type": "function", "function": {"name", "description", "parameters"}}``."""

REASONING = ("reasoning_content", "reasoning")
"""Fields of an assistant's message that servers with a reasoning parser send, and most of them want back."""
CARRIED = ("extra_content", "reasoning_details")
"""Gemini's signatures of its thoughts, and OpenRouter's: without them the next request is refused or worth less."""


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
