"""Which endpoint is asked, for which model, with which key: from the wish, else from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from steps.contracts.failure import FailureClass
from steps.contracts.run import RunSpec
from steps.errors import ConfigError
from steps.settings import settings

OPENAI = "https://api.openai.com/v1"
PROVIDERS = ("openai/", "litellm_proxy/", "hosted_vllm/")
"""LiteLLM's words for an endpoint of OpenAI's protocol. One of them before a name is no part of it; whatever else
stands before a slash is (Qwen/Qwen3-Coder, anthropic/claude-sonnet-4 on a router). Where the endpoint's own name begins
with such a word, it is written twice, as for LiteLLM: openai/openai/gpt-oss-20b."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked."""

    url: str
    model: str
    """As the endpoint knows it."""
    key: SecretStr | None

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{parts.hostname or ''}{port}", parts.path, "", ""))


def endpoint(spec: RunSpec) -> Endpoint:
    """Of the wish and the environment. Raises ConfigError where a model, an address or OpenAI's key is missing."""
    if not spec.agent.model:
        group = f"a model in {spec.llm.config}, which names none" if spec.llm.config else "--llm-config llm.NAME"
        raise ConfigError(
            f"agent {spec.agent.name!r} needs a model: --model openai/NAME, or {group}", field="agent.model"
        )
    url = (spec.llm.base_url or settings().llm_base_url or OPENAI).strip()
    model = wire_name(spec.agent.model)
    if not _is_address(url):
        raise ConfigError(
            "an address begins with http:// or https:// and ends with its path, as in http://host:8000/v1",
            field="llm.base_url",
        )
    openai = url.rstrip("/") == OPENAI
    if openai and "/" in model:  # its key would go to somebody else, too
        raise ConfigError(
            f"{model} is no name of a model of api.openai.com, and its prefix names no address here: name its endpoint "
            "with --base-url or LLM_BASE_URL",
            field="llm.base_url",
        )
    key = _sendable(settings().llm_api_key)
    if key is None and openai:
        raise ConfigError(
            "there is no key for api.openai.com: set OPENAI_API_KEY, or name another endpoint with --base-url",
            field="llm.base_url",
            failure_class=FailureClass.MODEL_ACCESS,
        )
    return Endpoint(url, model, key)


def _is_address(url: str) -> bool:
    """Whether requests can be sent below it: a path is joined to its end, so that nothing may stand there."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number, or too large
        (parts.hostname or "").encode("idna")  # raises where a label is empty or too long
    except ValueError:
        return False
    plain = not parts.query and not parts.fragment and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _sendable(key: SecretStr | None) -> SecretStr | None:
    """The key without what a file or a secret leaves round it. Raises ConfigError where no header can carry it."""
    secret = key.get_secret_value().strip() if key else ""
    if not all("!" <= letter <= "~" for letter in secret):
        raise ConfigError(
            "the key holds a blank, a line break or a character that is not ASCII, which no header can carry: copy it "
            "once more into LLM_API_KEY or OPENAI_API_KEY",
            failure_class=FailureClass.MODEL_ACCESS,
        )
    return SecretStr(secret) if secret else None


def wire_name(model: str) -> str:
    """The model's name without LiteLLM's word for the protocol."""
    for word in PROVIDERS:
        if model.startswith(word) and len(model) > len(word):
            return model.removeprefix(word)
    return model
