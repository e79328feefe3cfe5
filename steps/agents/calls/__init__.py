"""Tool call formats: function calling, and blocks in the model's text."""

from __future__ import annotations

from swe_argo.steps.agents.calls.function_calls import FunctionCalling
from swe_argo.steps.agents.calls.parse_result import CallFormat, Rules
from swe_argo.steps.agents.calls.text_calls import TextCalls


def call_format(fn_calling: bool, rules: Rules) -> CallFormat:
    """Return the call format, with the rules of a scaffold."""
    return FunctionCalling(rules) if fn_calling else TextCalls(rules)
