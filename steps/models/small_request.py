"""Small test request that shows whether an endpoint answers; used by plan and after unclear refusals."""

from __future__ import annotations

from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.protocols.wire import Body
from swe_argo.steps.models.reply import Message, ToolDefinition

TOOL: ToolDefinition = {
    "type": "function",
    "function": {
        "name": "report_word",
        "description": "Report a word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word to report."}},
            "required": ["word"],
        },
    },
}
FUNCTION = TOOL["function"]
WITH_TOOL: list[Message] = [{"role": "user", "content": "Call the tool report_word with the word: ready"}]
WITHOUT: list[Message] = [{"role": "user", "content": "Answer with one word: ready"}]
REQUESTS: dict[WireProtocol, Body] = {
    WireProtocol.CHAT: {"messages": WITH_TOOL, "tools": [TOOL]},
    WireProtocol.RESPONSES: {
        "input": [{"type": "message"} | WITH_TOOL[0]],
        "tools": [{"type": "function", "strict": False} | FUNCTION],
        "store": False,
    },
    WireProtocol.ANTHROPIC: {
        "messages": WITH_TOOL,
        "tools": [
            {"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}
        ],
    },
}
"""Test request per protocol, with a tool, as nearly all programs offer tools."""
TOKENS = 1024
"""Token limit of the test answer, with room for reasoning. If it is too low, the spec's own limit is used."""
RETRIES = 2
"""Retries of the test: enough for a busy endpoint, few enough to report a missing one soon."""
TIMEOUT_S = 120.0
"""Timeout of a test request."""


def small_settings(llm: LlmSpec) -> LlmSpec:
    """Return the settings for few, small and quick requests."""
    return llm.model_copy(
        update={
            "num_retries": min(llm.num_retries, RETRIES),
            "timeout": min(llm.timeout, TIMEOUT_S),
            "max_output_tokens": min(llm.max_output_tokens or TOKENS, TOKENS),
        }
    )
