"""The protocols of model endpoints and agent programs."""

from __future__ import annotations

from enum import StrEnum


class WireProtocol(StrEnum):
    """The protocol of model requests and responses."""

    CHAT = "chat"
    """OpenAI's chat completions."""
    RESPONSES = "responses"
    """OpenAI's Responses."""
    ANTHROPIC = "anthropic"
    """Anthropic's messages."""


NAMES = {
    WireProtocol.CHAT: "chat completions",
    WireProtocol.RESPONSES: "OpenAI Responses",
    WireProtocol.ANTHROPIC: "Anthropic messages",
}
"""Display names."""
