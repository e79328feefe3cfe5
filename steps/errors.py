"""Failures that are not the agent's. Each has one exit code, one class and one line for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from typing_extensions import override

from swe_argo.steps.contracts.failure import FINAL, FailureClass
from swe_argo.steps.contracts.record import Raw, Record

EXIT_OK = 0
EXIT_INCOMPLETE = 3
EXIT_CONFIG, EXIT_BUG = FINAL
EXIT_INFRA = 75
EXIT_RESOURCE = 76
EXIT_INTERRUPTED = 130
EXTRAS = {
    "boto3": "s3",
    "datasets": "hub",
    "docker": "docker",
    "e2b": "e2b",
    "hera": "argo",
    "kubernetes": "kubernetes",
    "minisweagent": "mini-swe-agent",
    "openai": "models",
    "orjson": "tinker",
    "pandas": "notebook",
    "starlette": "view",
    "tencentcloud": "ags",
    "tinker": "tinker",
    "uvicorn": "view",
    "wandb": "wandb",
    "websocket": "kubernetes",
}
"""Import name of an optional package -> the extra that installs it."""


def one_line(text: str, max_length: int, whole: str = "") -> str:
    """Return the text in a line of at most ``max_length`` characters, cut between words. ``whole``: its full source."""
    line = " ".join(text.split())
    if len(line) <= max_length:
        return line
    end = f" ... ({whole})" if whole else " ..."
    head = line[: max_length - len(end) + 1]
    # Cut at the last space, but keep at least half of the room.
    word = head.rfind(" ", len(head) // 2)  # a long run without spaces has no words to keep whole
    return f"{head[:word] if word > 0 else head[:-1]}{end}"


class StepError(Exception):
    """A failure of a step that is not the agent's fault.

    ``reason`` is one line for a person, ``detail`` the output of the infrastructure, ``partial_outputs`` the
    outputs of the try that are worth storing (a partial trajectory with its usage).
    """

    exit_code = EXIT_BUG
    output: bytes = b""
    """The output of a sandbox command up to its failure."""

    def __init__(
        self,
        failure_class: FailureClass,
        reason: str,
        *,
        detail: str = "",
        partial_outputs: tuple[Record | Raw, ...] = (),
    ) -> None:
        # The arguments stay as given: an exception crosses processes by being recreated from them.
        self.failure_class = failure_class
        self.reason = reason
        self.detail = detail
        self.partial_outputs = partial_outputs

    @override
    def __str__(self) -> str:
        return self.reason


class InfraError(StepError):
    """A failure of the infrastructure: retried with backoff, then reported by class."""

    exit_code = EXIT_INFRA


class ForeignAnswerError(InfraError):
    """A response from something other than the model's API, retries included: a firewall, a proxy, a login page."""


class ResourceError(StepError):
    """A sandbox without enough memory or disk: retried with twice the resources."""

    exit_code = EXIT_RESOURCE


class ConfigError(StepError):
    """A wrong request, never retried. ``field`` names the field to change; the message says how."""

    exit_code = EXIT_CONFIG

    def __init__(
        self, reason: str, *, field: str = "", failure_class: FailureClass = FailureClass.CONFIG, detail: str = ""
    ) -> None:
        super().__init__(failure_class, f"{field}: {reason}" if field else reason, detail=detail)
        self.field = field


def did_you_mean(name: str, choices: Iterable[str], full_names: Mapping[str, str] | None = None) -> str:
    """Return `` (did you mean X?)`` for a name close to one or two of ``choices``, whatever the case, else "".

    ``full_names``: the name to suggest in place of a choice.
    """
    import difflib

    spellings = {choice.lower(): (full_names or {}).get(choice, choice) for choice in choices}
    close = difflib.get_close_matches(name.strip().lower(), spellings, n=2, cutoff=0.75)
    suggestions = dict.fromkeys(spellings[match] for match in close)
    return f" (did you mean {' or '.join(suggestions)}?)" if suggestions else ""


def extra_hint(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'swe-argo[{extra}]', or in a checkout: make setup"


def missing_package(error: BaseException) -> ConfigError | None:
    """Return the ConfigError for a package of an extra that is not installed; None for any other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in EXTRAS:
        return None
    return ConfigError(f"the package {package} is not installed: {extra_hint(EXTRAS[package])}")
