"""Answers as a model client hands them over."""

from __future__ import annotations

from swe_argo.steps.contracts.trajectory import Metrics, MetricsExtra
from swe_argo.steps.models.reply import Message, Reply, RequestedCall


def reply(text: str = "", *calls: tuple[str, str], finish: str = "stop") -> Reply:
    """An answer with that text and calls (name, arguments)."""
    requested = tuple(RequestedCall(f"id-{n}", name, arguments) for n, (name, arguments) in enumerate(calls))
    message: Message = {"role": "assistant", "content": text or None}
    if requested:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in requested
        ]
    return Reply(text, Metrics(extra=MetricsExtra(finish_reason=finish)), message, calls=requested)
