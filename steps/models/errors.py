"""What an endpoint's refusal means. Told apart by status, code and wording: endpoints agree on none of them alone.

Wordings are those of OpenAI, Azure, vLLM, SGLang, LiteLLM, Tinker, Anthropic, OpenRouter, Gemini, DeepSeek, Together,
llama.cpp and Mistral.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Meaning(StrEnum):
    """What to do about it."""

    PASSING = "passing"
    """Ask again: 429, 5xx, timeouts, dropped connections."""
    ACCESS = "access"
    """A dead key or a used-up quota: nothing can be asked until somebody mends it."""
    OVERFLOW = "overflow"
    """The conversation is too long."""
    FILTERED = "filtered"
    """The endpoint will not have this conversation."""
    NO_TOOLS = "no_tools"
    """It takes no tools."""
    PARAMETER = "parameter"
    """It does not take one of the request's parameters, or not this value."""
    NO_MODEL = "no_model"
    """It does not know the model."""
    NO_PAGE = "no_page"
    """Nothing speaks OpenAI's protocol at this address."""
    REFUSED = "refused"
    """The request is wrong in some other way."""


@dataclass(frozen=True)
class Refusal:
    """An error as the endpoint told it. ``code`` and ``type`` are lower case, empty where it tells none."""

    status: int
    message: str
    code: str = ""
    type: str = ""
    param: str = ""
    structured: bool = True
    """Whether it came in JSON: an API speaks, not a proxy before it."""

    @classmethod
    def of(cls, status: int, body: Any) -> Refusal:
        """Read the body of an error: OpenAI's form, vLLM's flat one, FastAPI's ``detail``, or text."""
        inner = body.get("error", body) if isinstance(body, dict) else body
        if isinstance(inner, list) and inner:  # Gemini puts its object into a list
            inner = inner[0].get("error", inner[0]) if isinstance(inner[0], dict) else inner[0]
        if not isinstance(inner, dict):
            return cls(status, str(inner or "").strip(), structured=isinstance(body, dict))
        said = [str(inner[name]) for name in ("message", "detail", "msg") if inner.get(name)]
        metadata = inner.get("metadata")  # where OpenRouter hands on what its provider said
        if isinstance(metadata, dict) and metadata.get("raw"):
            said.append(str(metadata["raw"]))
        code, kind = str(inner.get("code") or "").lower(), str(inner.get("type") or inner.get("status") or "").lower()
        return cls(status, " ".join(said) or str(inner), code, kind, str(inner.get("param") or ""))


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_OVERFLOW = _any(
    r"context_length_exceeded|ContextWindowExceeded|exceed_context_size",
    r"maximum context length|maximum model length|model'?s context length|context window|context limit",
    r"available context size|prompt is too long|input is too long|input tokens exceed|request exceeds the maximum size",
    r"input token count.{0,40}exceeds|prompt (contains|has) .{0,40}tokens.{0,40}(too large|exceed)",
    r"max_(completion_)?tokens.{0,20}must be at least 1, got -?\d+|`inputs` tokens \+ `max_new_tokens` must be",
    r"(prompt|input|conversation|message)s?( length)? .{0,60}longer than .{0,40}(context|length)",
)
_QUOTA = _any(
    r"insufficient[_ ](quota|credit|balance|funds)|billing_(hard_limit|not_active)|credit balance is too low",
    r"budget has been exceeded|budget_exceeded|ExceededBudget|exceeded.{0,30}(budget|spend|credit) ?limit",
    r"credit limit exceeded|out of credits|key limit exceeded|account is not active|payment required",
    r"(account|organization).{0,20}(deactivated|disabled|suspended|arrears)|overdue balance",
)
_PLAN_QUOTA = _any(r"exceeded your current quota")
"""OpenAI says so for good, Gemini of a minute's limit, too."""
_PASSING_QUOTA = _any(r"retry in|retryDelay|per[ _-]?minute|resource_exhausted")
_KEY = _any(
    r"(incorrect|invalid) api[ _-]?key|api[ _-]?key (is )?(not valid|invalid|expired)|invalid (proxy server )?token",
    r"token_not_found|no api key passed|authentication_error|invalid x-api-key|key (has )?expired",
)
_FILTERED = _any(
    r"content[_ ]filter|content[_ ]?policy|ContentPolicyViolation|ResponsibleAI|content filtering policy|usage polic",
    r"data_inspection_failed|prohibited_content|flagged (as|by|for)|was flagged|content management policy",
)
_NO_TOOLS = _any(
    r"enable-auto-tool-choice|tool[- ]call[- ]parser|does not support (tool|function)|tools? (is|are) not supported",
    r"(tool use|tool calling|function calling|tools?).{0,30}(not|un)[ -]?(supported|available|enabled)",
    r"no endpoints found that support tool",
)
_NO_MODEL = _any(
    r"model_not_found|invalid model name|unknown model|no such model|not a valid model|model_not_supported",
    r"model [`'\"]?[^ ]{1,200} ?(does not exist|not found|is not (available|supported)|was not found)",
    r"model .{0,200}(does not exist|not found)|not_found_error.{0,20}model|no endpoints found for",
)
_PARAMETER = _any(
    r"unsupported|not supported|unrecognized|unknown (name|parameter|field|argument)|extra (inputs|fields)",
    r"not permitted|unexpected (keyword|field|parameter)|does not support|cannot be used|deprecated|extra_forbidden",
    r"is not allowed|not compatible",
)


def meaning(refusal: Refusal) -> Meaning:
    """What an error answer means; a used-up quota is looked for first, it comes as 400, 403 and 429, too."""
    text = f"{refusal.code} {refusal.type} {refusal.message}"
    for applies, means in _RULES:
        if applies(refusal, text):
            return means
    return Meaning.REFUSED


def _is_access(refusal: Refusal, text: str) -> bool:
    if refusal.status in (401, 402) or _QUOTA.search(text):
        return True
    if _PLAN_QUOTA.search(text) and not _PASSING_QUOTA.search(text):
        return True
    return refusal.status in (400, 403) and _KEY.search(text) is not None


_RULES: tuple[tuple[Callable[[Refusal, str], object], Meaning], ...] = (
    (lambda refusal, _: refusal.status >= 500 and refusal.status != 501, Meaning.PASSING),
    (_is_access, Meaning.ACCESS),
    (lambda refusal, _: refusal.status in (408, 409, 423, 425, 429, 498, 499), Meaning.PASSING),
    # A page of a proxy, for want of a server behind it: the endpoint itself answers in JSON.
    (lambda refusal, _: refusal.status in (404, 405) and not refusal.structured, Meaning.PASSING),
    (lambda refusal, text: refusal.status == 413 or _OVERFLOW.search(text), Meaning.OVERFLOW),
    (lambda _, text: _FILTERED.search(text), Meaning.FILTERED),
    (lambda refusal, _: refusal.status == 403, Meaning.ACCESS),
    (lambda _, text: _NO_TOOLS.search(text), Meaning.NO_TOOLS),
    (lambda _, text: _NO_MODEL.search(text), Meaning.NO_MODEL),
    (lambda refusal, _: refusal.status in (404, 405), Meaning.NO_PAGE),
    (lambda _, text: _PARAMETER.search(text), Meaning.PARAMETER),
)
"""The first that applies counts."""


def parameter_of(refusal: Refusal, sent: tuple[str, ...]) -> str | None:
    """Which of the parameters that were sent is meant: the one that is named, or named first in the message."""
    if refusal.param in sent:
        return refusal.param
    places = {name: found.start() for name in sent if (found := re.search(rf"\b{name}\b", refusal.message))}
    return min(places, key=lambda name: places[name]) if places else None
