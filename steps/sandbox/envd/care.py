"""Lifecycle hooks of provider backends: removal of orphans, and a notice while the account is full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from swe_argo.steps.contracts.data import Unit
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.envd.orphans import ProviderSandboxes
from swe_argo.steps.sandbox.envd.refusals import Refusals
from swe_argo.steps.sandbox.envd.room_watch import watch_room


class ProviderCare:
    """The hooks of a run. Orphans are recognised by their owner, for any run or unit. ``answers``: a health check."""

    env: Mapping[str, str] = {}

    def __init__(self, sandboxes: ProviderSandboxes, answers: Callable[[], bool]) -> None:
        self._sandboxes = sandboxes
        self._answers = answers

    def can_create(self) -> bool:
        """Return whether the service answers."""
        return self._answers()

    def remove_remains(self, _unit: Unit) -> None:
        """Remove all orphans."""
        self._sandboxes.remove_orphans()

    def finish_unit(self, _unit: Unit) -> None:
        """Do nothing: a sandbox is gone with its unit."""


@contextmanager
def care_at(sandboxes: ProviderSandboxes, refusals: Refusals, answers: Callable[[], bool]) -> Iterator[ProviderCare]:
    """Yield the hooks of a run, see ``swe_argo.steps.sandbox.care``. ``refusals``: the account's, for lack of room."""
    with suppress(StepError):
        sandboxes.remove_orphans()
    try:
        with watch_room(refusals, sandboxes.where):
            yield ProviderCare(sandboxes, answers)
    finally:
        with suppress(StepError):  # of killed steps, or of steps ended while they waited for an answer
            sandboxes.remove_orphans()
