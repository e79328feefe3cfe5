"""Lifecycle hooks: a backend's work for a run besides creating sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox import load_part


class RunHooks(Protocol):
    """The lifecycle hooks of one run."""

    env: Mapping[str, str]
    """Environment variables that the steps need in addition to the spec."""

    def can_create(self) -> bool:
        """Return whether sandboxes can be created now; until then no retry starts. Never raises."""

    def remove_remains(self, unit: Unit) -> None:
        """Remove what a lost sandbox of ``unit`` left behind. It may raise StepError, which does not fail the run."""

    def finish_unit(self, unit: Unit) -> None:
        """Release the resources of a finished unit."""


class _NoHooks:
    env: Mapping[str, str] = {}

    def can_create(self) -> bool:
        return True

    def remove_remains(self, unit: Unit) -> None:
        """Do nothing."""

    def finish_unit(self, unit: Unit) -> None:
        """Do nothing."""


def run_hooks(spec: SandboxSpec, plan: Plan) -> AbstractContextManager[RunHooks]:
    """Return the lifecycle hooks of the spec's backend for a run; hooks that do nothing if the backend has none.

    Raises ConfigError if another process works on the run, InfraError if the backend has disappeared since planning.
    """
    # Backends for earlier versions name it ``care_for``.
    hooks = load_part(spec.backend, "hooks", "run_hooks") or load_part(spec.backend, "care", "care_for")
    return cast("AbstractContextManager[RunHooks]", hooks(spec, plan)) if hooks else nullcontext(_NoHooks())
