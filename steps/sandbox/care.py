"""What a backend does for a run beside making its sandboxes, where there is anything to do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox import load_part


class Care(Protocol):
    """The care of one run's sandboxes, for as long as the run goes on."""

    env: Mapping[str, str]
    """Variables of the environment of the steps: what they must know of it, beside the spec."""

    def can_create(self) -> bool:
        """Whether sandboxes can be had at present: while they cannot, no try is begun again. Never raises."""

    def remove_remains(self, unit: Unit) -> None:
        """A sandbox of ``unit`` was lost: remove what is left of it. A StepError is no failure of the run."""

    def finish_unit(self, unit: Unit) -> None:
        """Nothing more is to be done for ``unit``."""


class _NoCare:
    env: Mapping[str, str] = {}

    def can_create(self) -> bool:
        return True

    def remove_remains(self, unit: Unit) -> None:
        """Nothing is known of it."""

    def finish_unit(self, unit: Unit) -> None:
        """Nothing is kept for it."""


def care_for(spec: SandboxSpec, plan: Plan) -> AbstractContextManager[Care]:
    """The care of the spec's backend for a run.

    Raises ConfigError where somebody else works on the run, InfraError where the backend went away since plan.
    """
    offer = load_part(spec.backend, "care", "care_for")
    return cast("AbstractContextManager[Care]", offer(spec, plan)) if offer else nullcontext(_NoCare())
