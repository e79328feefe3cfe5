"""Normalisation of an answer to a chat completion in OpenAI's exact form, for translation to other protocols.

Endpoints send call arguments as objects, usage as text and contents as parts; ``reply_of`` and ``metrics_of`` have
parsed them all.
"""

from __future__ import annotations

from swe_argo.steps.models.call import Answered
from swe_argo.steps.models.protocols.wire import Body
from swe_argo.steps.models.reply import Reply
from swe_argo.steps.models.response_body import choice_of

STOPPED_BY = "stop_reason"
"""Field of a choice for the stop word that ended the answer, as vLLM names it; OpenAI does not send it."""


def plain_completion(answered: Answered) -> Body:
    """Return the normalised completion; call arguments keep the model's exact text."""
    body, metrics = answered.response.body, answered.metrics
    choice, extra, created = choice_of(body), metrics.extra, body.get("created")
    finish = {"finish_reason": extra and extra.finish_reason} | {STOPPED_BY: _stop_word(choice)}
    return {
        "created": created if isinstance(created, int) else 0,
        "choices": [{"message": _message(answered, choice)} | finish],
        "usage": {
            "prompt_tokens": metrics.prompt_tokens,
            "completion_tokens": metrics.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": metrics.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": extra and extra.reasoning_tokens},
        },
    }


def _stop_word(choice: Body) -> str | None:
    """Return the stop word that ended the answer, None if it is unknown."""
    words = (choice.get(name) for name in (STOPPED_BY, "matched_stop"))  # SGLang's name; either may be a token id
    return next((word for word in words if isinstance(word, str)), None)


def _message(answered: Answered, choice: Body) -> Body:
    """Return the message with the calls' exact arguments; without a reply, only its content and refusal."""
    raw, reply = choice.get("message"), answered.outcome
    fields: Body = raw if isinstance(raw, dict) else {}
    refusal = fields["refusal"] if isinstance(fields.get("refusal"), str) else None
    if not isinstance(reply, Reply):
        return {"content": fields["content"] if isinstance(fields.get("content"), str) else "", "refusal": refusal}
    message: Body = reply.message | {"refusal": refusal}
    if reply.calls:
        written = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
        pairs = zip(message["tool_calls"], written, strict=True)
        message["tool_calls"] = [call | {"function": call["function"] | function} for call, function in pairs]
    return message
