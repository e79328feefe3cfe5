"""Failures that are not the agent's. Each is one exit code, one class and one line for a person."""

from __future__ import annotations

from swe_argo.steps.contracts.exit_codes import FINAL
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.record import Raw, Record

EXIT_OK = 0
EXIT_INCOMPLETE = 3
EXIT_CONFIG, EXIT_BUG = FINAL
EXIT_INFRA = 75
EXIT_RESOURCE = 76
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


def one_line(text: str, most: int, whole: str = "") -> str:
    """The text in one line of at most so many characters, cut between words. ``whole``: where all of it is kept."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    end = f" ... ({whole})" if whole else " ..."
    head = line[: most - len(end) + 1]
    word = head.rfind(" ", len(head) // 2)  # what has no spaces for so long has no words to keep whole
    return f"{head[:word] if word > 0 else head[:-1]}{end}"


class StepError(Exception):
    """A step could not do its work through no fault of the agent.

    ``reason`` is one line for a person, ``detail`` what the infrastructure said, ``leaves`` the data worth keeping of
    the try (a partial trajectory with its usage).
    """

    exit_code = EXIT_BUG
    output: bytes = b""
    """What a command of a sandbox had printed by the time it failed."""

    def __init__(
        self, failure_class: FailureClass, reason: str, *, detail: str = "", leaves: tuple[Record | Raw, ...] = ()
    ) -> None:
        # The arguments are left as they were given: an exception crosses processes by being made again from them.
        self.failure_class = failure_class
        self.reason = reason
        self.detail = detail
        self.leaves = leaves

    def __str__(self) -> str:
        return self.reason


class InfraError(StepError):
    """The world failed: retried with backoff, then reported by class."""

    exit_code = EXIT_INFRA


class ForeignAnswerError(InfraError):
    """Something else than the model's API answered, retries included: a firewall, a proxy, a login page."""


class ResourceError(StepError):
    """The sandbox ran out of memory or disk: retried with twice the resources."""

    exit_code = EXIT_RESOURCE


class ConfigError(StepError):
    """The request is wrong: never retried. ``field`` names what to change; the message says how."""

    exit_code = EXIT_CONFIG

    def __init__(
        self, reason: str, *, field: str = "", failure_class: FailureClass = FailureClass.CONFIG, detail: str = ""
    ) -> None:
        super().__init__(failure_class, f"{field}: {reason}" if field else reason, detail=detail)
        self.field = field


def extra_hint(extra: str) -> str:
    """Return how to install an extra."""
    return f"pip install 'swe-argo[{extra}]', or in a checkout: make setup"


def missing_package(error: BaseException) -> ConfigError | None:
    """Return the ConfigError for a package of an extra that is not installed; None for any other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in EXTRAS:
        return None
    return ConfigError(f"the package {package} is not installed: {extra_hint(EXTRAS[package])}")
