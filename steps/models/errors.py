"""What an endpoint's refusal means. Told apart by status, code and wording: endpoints agree on none of them alone.

What is read from code, type and status counts where endpoints have them; the rest is their words, of which
tests/steps/models/wordings.jsonl has one each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ErrorMeaning(StrEnum):
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
    UNANSWERABLE = "unanswerable"
    """The conversation has become one that the endpoint does not answer, for a reason that its words do not tell."""


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
        inner = (body.get("error") or body) if isinstance(body, dict) else body
        if isinstance(inner, list) and inner:  # Gemini puts its object into a list
            inner = inner[0].get("error", inner[0]) if isinstance(inner[0], dict) else inner[0]
        if not isinstance(inner, dict):
            # xAI's and Hugging Face's code and type stand beside the words.
            fields = body if isinstance(body, dict) else {}
            code, kind = str(fields.get("code") or ""), str(fields.get("type") or fields.get("error_type") or "")
            words = str(inner or "").strip()
            return cls(status, words, code.lower(), kind.lower(), structured=isinstance(body, dict))
        texts = [str(inner[name]) for name in ("message", "detail", "msg") if inner.get(name)]
        metadata = inner.get("metadata")  # where OpenRouter hands on what its provider said
        if isinstance(metadata, dict) and metadata.get("raw"):
            texts.append(str(metadata["raw"]))
        code, kind = str(inner.get("code") or "").lower(), str(inner.get("type") or inner.get("status") or "").lower()
        return cls(status, " ".join(texts) or str(inner), code, kind, str(inner.get("param") or ""))

    @property
    def is_page(self) -> bool:
        """Whether it is a page of HTML: a firewall or a proxy answered, whatever its words."""
        return not self.structured and self.message.lstrip().startswith("<")

    @property
    def is_foreign(self) -> bool:
        """Whether something else than the API refused, and not because it is busy."""
        return not self.structured and self.status < 500 and self.status not in _BUSY


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_SUBJECT = r"\b(prompts?|inputs?|messages?|conversation)\b"
_OVERFLOW = _any(
    # Codes and names of errors: OpenAI, LiteLLM, llama.cpp, Anthropic, GitHub Models, LMDeploy.
    r"context_(length|window)_exceeded|ContextWindowExceeded|exceed_context_size|request_too_large",
    r"tokens_limit_reached|INPUT_LENGTH_ERROR",
    # What is exceeded: OpenAI, vLLM, xAI (maximum prompt length), DeepInfra (maximum input length), Mistral, Poolside
    # (maximum allowed input length), Triton (maximum sequence length), Ark (max message tokens), TensorRT-LLM.
    r"max(imum)?[ _](allowed )?(model|context|prompt|input|sequence|seq|message)[ _]?(length|len|tokens)",
    r"max_num_tokens|model'?s? (context|max) length|available context size|configured context size|model token limit",
    r"context (window|limit)|context size has been exceeded|context shift is disabled",
    # What is too long: Anthropic, Bedrock, Zhipu (prompt exceeds max length), Ark, LM Studio, Ollama, Copilot, Cohere.
    rf"{_SUBJECT}.{{0,40}}too long",
    rf"{_SUBJECT}.{{0,70}}(exceed\w*|greater than|longer than|larger than|too large).{{0,60}}(length|limit|tokens)",
    r"request exceeds the (maximum size|model)|max length exceeded|too many tokens.{0,80}prompt",
    # What to do about it: Groq, Cerebras.
    r"reduce the length of|current length is \d+ while limit",
    # What it must be: Hugging Face, Together, DashScope, vLLM.
    r"inputs`? (tokens \+ `?max_new_tokens`? must be|must have less than)|range of input length should be",
    r"max_(completion_)?tokens.{0,20}must be at least 1, got -?\d+",
)
_DYING = _any(
    r"engine.{0,20}(died|dead|fail)|crash|unavailable|overloaded|out of memory|shutting down|time[d ]*out|deadline"
)
"""Words of a server whose own state is the matter."""
_RATE = _any(r"rate[ _-]?limit|throttl|too many requests|(tokens|requests) per (min|hour|day)")
"""Groq says it with 413, proxies of Bedrock with 400 and 500."""
_QUOTA = _any(
    r"insufficient[_ ](quota|credit|balance|funds)|exceeded_current_quota|billing_(hard_limit|not_active)",
    r"credit balance is too low",
    r"budget has been exceeded|budget_exceeded|ExceededBudget|exceeded.{0,30}(budget|spend|credit) ?limit",
    r"credit limit exceeded|out of credits|key limit exceeded|account is not active|payment required",
    r"(account|organization).{0,20}(deactivated|disabled|suspended|arrears)|overdue balance",
)
_PLAN_QUOTA = _any(r"exceeded your current quota")
"""OpenAI says so for good, Gemini of a minute's limit, too."""
_PASSING_QUOTA = _any(r"retry in|retryDelay|per[ _-]?minute|resource_exhausted")
_WAIT = _any(
    _RATE.pattern, _PASSING_QUOTA.pattern, _DYING.pattern, r"try again|later|slow down|busy|capacity|concurren|tempora"
)
_KEY = _any(
    r"(incorrect|invalid) api[ _-]?key|api[ _-]?key (is )?(not valid|invalid|expired)|invalid (proxy server )?token",
    r"token_not_found|no api key passed|authentication_error|invalid x-api-key|key (has )?expired",
    r"security token.{0,40}expired",
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
    r"model .{0,200}(does not exist|not found)|not_found_error.{0,20}model|no endpoints found|deploymentnotfound",
)
_PARAMETER = _any(
    r"unsupported|not supported|unrecognized|unknown (name|parameter|field|argument)|extra (inputs|fields)",
    r"not permitted|unexpected (keyword|field|parameter)|does not support|cannot be used|deprecated|extra_forbidden",
    r"is not allowed|not compatible",
)
_NO_PAGE = _any(
    # OpenAI, Groq, LM Studio (which says it with 200), Express.
    r"(invalid|unknown request) url|unexpected endpoint or method|cannot post /",
    r"(unknown|unsupported|no such|invalid) (path|endpoint|route)",
)


def error_meaning(refusal: Refusal) -> ErrorMeaning:
    """What an error answer means; a used-up quota is looked for first, it comes as 400, 403 and 429, too."""
    text = f"{refusal.code} {refusal.type} {refusal.message}"
    return next((means for applies, means in _RULES if applies(refusal, text)), ErrorMeaning.REFUSED)


def is_unknown_page(refusal: Refusal) -> bool:
    """Whether nothing is at the path of a request that was made to find that out.

    Then a proxy's page is an answer, too: where requests are known to be taken, it is one that passes.
    """
    if refusal.status in (404, 405, 501) and (not refusal.structured or error_meaning(refusal) is ErrorMeaning.REFUSED):
        return True
    told = refusal.status not in (401, 403, 429) and _NO_PAGE.search(refusal.message) is not None
    return told or error_meaning(refusal) is ErrorMeaning.NO_PAGE


def later_meaning(means: ErrorMeaning) -> ErrorMeaning:
    """What it means of a request that goes on with a conversation which the endpoint took so far.

    What it did not mind then is not what is wrong now: a model that is gone may be back, and what else is refused is
    what was said since.
    """
    if means in (ErrorMeaning.NO_MODEL, ErrorMeaning.NO_PAGE):
        return ErrorMeaning.PASSING
    return (
        ErrorMeaning.UNANSWERABLE
        if means in (ErrorMeaning.NO_TOOLS, ErrorMeaning.PARAMETER, ErrorMeaning.REFUSED)
        else means
    )


def _is_access(refusal: Refusal, text: str) -> bool:
    if refusal.status == 402 or _QUOTA.search(text) or is_of_key(refusal):
        return True
    return bool(_PLAN_QUOTA.search(text)) and not _PASSING_QUOTA.search(text)


def is_in_doubt(refusal: Refusal, means: ErrorMeaning) -> bool:
    """Return whether a refusal does not tell if it is about this one request, or about whatever is asked."""
    text = f"{refusal.code} {refusal.type} {refusal.message}"
    doubtful = (ErrorMeaning.REFUSED, ErrorMeaning.UNANSWERABLE)
    return means in doubtful or (means is ErrorMeaning.ACCESS and not _is_access(refusal, text))


def can_be_waited_for(refusal: Refusal, requested_s: float | None) -> bool:
    """Return whether a refusal that counts as passing says so itself: by its status, its words or a time to wait.

    A 429 with words about something else may be a used-up quota (xAI's).
    """
    text = f"{refusal.code} {refusal.type} {refusal.message}"
    says_so = refusal.status != 429 or not refusal.structured or requested_s is not None
    return says_so or _WAIT.search(text) is not None


def is_of_key(refusal: Refusal) -> bool:
    """Whether a refusal is about the key itself: not about its quota, and not about who may ask from where."""
    text = f"{refusal.code} {refusal.type} {refusal.message}"
    return refusal.status == 401 or (refusal.status in (400, 403) and _KEY.search(text) is not None)


def _is_overflow_told_as_failure(text: str) -> bool:
    return bool(_OVERFLOW.search(text)) and not _DYING.search(text) and not _RATE.search(text)


_BUSY = (408, 409, 423, 424, 425, 429, 498, 499)
"""Of them 424 is what Bedrock and Hugging Face's server say where the model itself failed."""
_RULES: tuple[tuple[Callable[[Refusal, str], object], ErrorMeaning], ...] = (
    (lambda refusal, text: refusal.status >= 500 and _is_overflow_told_as_failure(text), ErrorMeaning.OVERFLOW),
    (lambda refusal, _: refusal.status >= 500 and refusal.status != 501, ErrorMeaning.PASSING),
    (lambda refusal, _: refusal.is_page and refusal.status not in (401, 402, 413), ErrorMeaning.PASSING),
    (_is_access, ErrorMeaning.ACCESS),
    (lambda refusal, text: refusal.status in _BUSY or _RATE.search(text), ErrorMeaning.PASSING),
    # A page of a proxy, for want of a server behind it: the endpoint itself answers in JSON.
    (lambda refusal, _: refusal.status in (404, 405) and not refusal.structured, ErrorMeaning.PASSING),
    (lambda refusal, text: refusal.status == 413 or _OVERFLOW.search(text), ErrorMeaning.OVERFLOW),
    (lambda _, text: _FILTERED.search(text), ErrorMeaning.FILTERED),
    (lambda refusal, _: refusal.status == 403 and refusal.structured, ErrorMeaning.ACCESS),
    (lambda _, text: _NO_TOOLS.search(text), ErrorMeaning.NO_TOOLS),
    (lambda _, text: _NO_MODEL.search(text), ErrorMeaning.NO_MODEL),
    (lambda refusal, _: refusal.status in (404, 405), ErrorMeaning.NO_PAGE),
    (lambda _, text: _PARAMETER.search(text), ErrorMeaning.PARAMETER),
    (lambda refusal, _: refusal.is_foreign, ErrorMeaning.PASSING),
)
"""The first that applies counts."""


def parameter_of(refusal: Refusal, parameters: tuple[str, ...]) -> str | None:
    """Which of the parameters that were sent is meant: the one that is named, or named first in the message."""
    if refusal.param in parameters:
        return refusal.param
    places = {name: match.start() for name in parameters if (match := re.search(rf"\b{name}\b", refusal.message))}
    return min(places, key=lambda name: places[name]) if places else None
