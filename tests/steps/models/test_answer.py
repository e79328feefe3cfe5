from __future__ import annotations

from steps.agents.calls import call_format
from steps.contracts.run import LlmSpec
from steps.models.answer import Answered, metrics_of, reply_of

SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}


def test_what_an_endpoint_wants_back_beside_text_and_calls_goes_back() -> None:
    """Gemini 3 refuses a conversation whose calls come back without their signatures."""
    function = {"name": "execute_bash", "arguments": '{"cmd":  "ls"}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function, "extra_content": SIGNATURE}
    details = [{"type": "reasoning.encrypted", "data": "eA=="}]
    message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_details": details, "audio": None}
    answered = Answered({"choices": [{"message": message, "finish_reason": "tool_calls"}]}, {}, 0.1)
    reply = reply_of(answered, metrics_of(answered, LlmSpec(), 1))
    sent = call_format(True).said(reply)
    assert sent == reply.message
    assert sent["reasoning_details"] == details
    assert sent["tool_calls"] == [{name: value for name, value in call.items() if name != "index"}]
    assert "audio" not in sent
