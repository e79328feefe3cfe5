"""Recognition of the vendor of a key, a host or a model by its form, so that a key goes only to its vendor."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True)
class Vendor:
    """A vendor of models."""

    name: str
    url: str
    """URL of its OpenAI-compatible API."""
    hosts: tuple[str, ...]
    """Host name patterns. A host without a match may be a proxy, which accepts any key."""
    keys: tuple[str, ...] = ()
    """Prefixes of its keys, if they are distinctive."""
    models: tuple[str, ...] = ()
    """Prefixes of its model names."""


OPENAI = Vendor(
    "OpenAI",
    "https://api.openai.com/v1",
    ("api.openai.com", "*.api.openai.com"),
    ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"),
    ("gpt-", "chatgpt", "o1", "o3", "o4", "o5", "codex", "computer-use", "ft:", "davinci", "babbage", "text-davinci"),
)
"""Default vendor if a spec names no URL."""
ANTHROPIC = Vendor("Anthropic", "https://api.anthropic.com/v1", ("*.anthropic.com",), ("sk-ant-",), ("claude",))
OPEN_WEIGHTS = Vendor(
    "whoever serves it", "URL", (), (), ("gpt-oss", "gpt-j", "gpt-neo", "llama", "phi-", "olmo", "starcoder")
)
"""Open weights without a vendor of their own."""
VENDORS = (
    OPEN_WEIGHTS,
    OPENAI,
    ANTHROPIC,
    Vendor(
        "Google",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("generativelanguage.googleapis.com", "*aiplatform.googleapis.com"),
        ("AIza", "AQ.", "ya29."),
        ("gemini", "gemma", "learnlm"),
    ),
    Vendor("xAI", "https://api.x.ai/v1", ("*.x.ai",), ("xai-",), ("grok",)),
    Vendor("Groq", "https://api.groq.com/openai/v1", ("*.groq.com",), ("gsk_",)),
    Vendor("OpenRouter", "https://openrouter.ai/api/v1", ("openrouter.ai", "*.openrouter.ai"), ("sk-or-",)),
    Vendor("Hugging Face", "https://router.huggingface.co/v1", ("*.huggingface.co", "*.huggingface.cloud"), ("hf_",)),
    Vendor("DeepSeek", "https://api.deepseek.com/v1", ("*.deepseek.com",), (), ("deepseek",)),
    Vendor(
        "Mistral",
        "https://api.mistral.ai/v1",
        ("*.mistral.ai",),
        (),
        ("mistral", "codestral", "devstral", "magistral", "ministral", "pixtral", "open-mi"),
    ),
    Vendor("Moonshot", "https://api.moonshot.ai/v1", ("*.moonshot.ai", "*.moonshot.cn"), (), ("kimi", "moonshot")),
    Vendor("Z.ai", "https://api.z.ai/api/paas/v4", ("*.z.ai", "*.bigmodel.cn"), (), ("glm", "chatglm")),
    Vendor(
        "DashScope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("dashscope*.aliyuncs.com",),
        (),
        ("qwen", "qwq", "qvq"),
    ),
    Vendor("Perplexity", "https://api.perplexity.ai", ("*.perplexity.ai",), ("pplx-",), ("sonar",)),
    Vendor("NVIDIA", "https://integrate.api.nvidia.com/v1", ("*.api.nvidia.com",), ("nvapi-",), ("nemotron",)),
    Vendor("Cerebras", "https://api.cerebras.ai/v1", ("*.cerebras.ai",), ("csk-",)),
    Vendor("Fireworks", "https://api.fireworks.ai/inference/v1", ("*.fireworks.ai",), ("fw_",)),
    Vendor("Together", "https://api.together.xyz/v1", ("*.together.xyz", "*.together.ai"), ("tgp_v1_",)),
    Vendor("DeepInfra", "https://api.deepinfra.com/v1/openai", ("*.deepinfra.com",)),
    Vendor("Cohere", "https://api.cohere.ai/compatibility/v1", ("*.cohere.ai", "*.cohere.com"), (), ("command",)),
    Vendor("MiniMax", "https://api.minimax.io/v1", ("*.minimax.io", "*.minimaxi.com"), (), ("minimax", "abab")),
    Vendor(
        "GitHub",
        "https://models.github.ai/inference",
        ("models.github.ai", "*.githubcopilot.com"),
        ("ghp_", "gho_", "ghu_", "github_pat_"),
    ),
    Vendor("Replicate", "https://openai-proxy.replicate.com/v1", ("*.replicate.com",), ("r8_",)),
    Vendor(
        "Amazon Bedrock",
        "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1",
        ("bedrock*.amazonaws.com",),
        ("ABSK", "bedrock-api-key-"),
        ("amazon.", "nova-"),
    ),
    Vendor("Azure", "https://NAME.openai.azure.com/openai/v1", ("*.openai.azure.com", "*.services.ai.azure.com")),
)
_LEGACY = "T3BlbkFJ"
"""Marker inside every OpenAI key that begins with plain sk-, a prefix that other vendors use, too."""


def vendor_of_key(secret: str) -> Vendor | None:
    """Return the vendor of a key, None if its form is not distinctive."""
    if _LEGACY in secret:
        return OPENAI
    return next((vendor for vendor in VENDORS if secret.startswith(vendor.keys or ("\0",))), None)


def vendor_of_host(host: str) -> Vendor | None:
    """Return the vendor of a host, None for a private server, a proxy or an unknown one."""
    name = host.lower().rstrip(".")
    return next((vendor for vendor in VENDORS if any(fnmatch(name, pattern) for pattern in vendor.hosts)), None)


def vendor_of_model(name: str) -> Vendor | None:
    """Return the vendor of a model by its name, None if unknown. Other vendors may serve open weights, too."""
    return next((vendor for vendor in VENDORS if name.lower().startswith(vendor.models or ("\0",))), None)
