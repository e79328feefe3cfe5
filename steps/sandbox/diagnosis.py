"""Whether a backend works here, for a person who asks before any run."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.backends import is_own_backend
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError, one_line
from swe_argo.steps.sandbox import FIELD, load_part

REASON_WIDTH = 300
"""Of what a diagnosis that failed says."""


@dataclass(frozen=True)
class Diagnosis:
    """``well`` None: it is not set up, and need not be. ``mend``: what would make it work, or work better."""

    well: bool | None
    detail: str
    mend: str = ""


def diagnose(backend: str, spec: SandboxSpec) -> Diagnosis:
    """Ask the backend, with the spec's table of it. Never raises: others are asked after it."""
    try:
        ask = load_part(backend, "diagnosis", "diagnose")
        answer = ask(spec) if ask else Diagnosis(None, "says nothing of itself")
    except ConfigError as error:
        # Of ours nobody asked for one that is not set up; one's own was named.
        return Diagnosis(False if is_own_backend(backend) else None, error.reason.removeprefix(f"{FIELD}: "))
    except Exception as error:  # noqa: BLE001 - one's own code may raise anything
        reason = error.reason if isinstance(error, StepError) else f"{type(error).__name__}: {error}"
        return Diagnosis(False, one_line(reason, REASON_WIDTH))
    if not isinstance(answer, Diagnosis):
        return Diagnosis(False, f"its diagnose gave {type(answer).__name__}, not Diagnosis")
    return answer
