"""Checks whether a backend works on this machine, on request and before any run."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.backends import is_own_backend
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError, one_line
from swe_argo.steps.sandbox import FIELD, load_part

REASON_WIDTH = 300
"""Maximum characters shown of a failed diagnosis."""


@dataclass(frozen=True)
class Diagnosis:
    """A backend's state. ``well`` is None if it is not set up, which is no error; ``mend`` says how to improve it."""

    well: bool | None
    detail: str
    mend: str = ""


def diagnose(backend: str, spec: SandboxSpec) -> Diagnosis:
    """Ask a backend for its diagnosis, with its table in the spec. Never raises, so that the next one is asked too."""
    try:
        ask = load_part(backend, "diagnosis", "diagnose")
        answer = ask(spec) if ask else Diagnosis(None, "says nothing of itself")
    except ConfigError as error:
        # A built-in backend that is not set up is no failure, since nobody asked for it; a custom one was named.
        return Diagnosis(False if is_own_backend(backend) else None, error.reason.removeprefix(f"{FIELD}: "))
    except Exception as error:  # noqa: BLE001 - a custom backend may raise anything
        reason = error.reason if isinstance(error, StepError) else f"{type(error).__name__}: {error}"
        return Diagnosis(False, one_line(reason, REASON_WIDTH))
    if not isinstance(answer, Diagnosis):
        return Diagnosis(False, f"its diagnose gave {type(answer).__name__}, not Diagnosis")
    return answer
