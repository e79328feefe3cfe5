"""The protocols in which models are asked: by agent programs, and at endpoints."""

from __future__ import annotations

from enum import StrEnum


class WireProtocol(StrEnum):
    """How a request and its answer are put."""

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
"""For people."""
