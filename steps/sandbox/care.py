"""Lifecycle hooks: the work of a backend for a run besides making its sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox import load_part


class Care(Protocol):
    """The lifecycle hooks of one run, valid as long as the run."""

    env: Mapping[str, str]
    """Environment variables that the steps need in addition to the spec."""

    def can_create(self) -> bool:
        """Return whether sandboxes can be created now; while they cannot, no try starts again. Never raises."""

    def remove_remains(self, unit: Unit) -> None:
        """Remove the leftovers of a lost sandbox of ``unit``. A StepError does not fail the run."""

    def finish_unit(self, unit: Unit) -> None:
        """Release resources kept for ``unit``, which is finished."""


class _NoCare:
    env: Mapping[str, str] = {}

    def can_create(self) -> bool:
        return True

    def remove_remains(self, unit: Unit) -> None:
        """Do nothing: there are no leftovers."""

    def finish_unit(self, unit: Unit) -> None:
        """Do nothing: nothing is kept."""


def care_for(spec: SandboxSpec, plan: Plan) -> AbstractContextManager[Care]:
    """Return the lifecycle hooks of the spec's backend for a run.

    Raises ConfigError if another process works on the run, InfraError if the backend has disappeared since planning.
    """
    offer = load_part(spec.backend, "care", "care_for")
    return cast("AbstractContextManager[Care]", offer(spec, plan)) if offer else nullcontext(_NoCare())
