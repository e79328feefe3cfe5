"""The two ways models call tools: function calling, and blocks in their text."""

from __future__ import annotations

from steps.agents.calls.functions import FunctionCalling
from steps.agents.calls.parsed import CallFormat
from steps.agents.calls.text import TextCalls


def call_format(fn_calling: bool) -> CallFormat:
    """Function calling, or text."""
    return FunctionCalling() if fn_calling else TextCalls()
