"""What a run at AGS needs beside sandboxes: no leftovers, and a word to a person while the quota is used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from steps.contracts.data import Plan, Unit
from steps.contracts.run_spec import SandboxSpec
from steps.errors import StepError
from steps.sandbox.ags.diagnosis import diagnose
from steps.sandbox.ags.orphans import find_orphans, remove_orphans
from steps.sandbox.ags.service import place
from steps.sandbox.ags.start import start_refusals
from steps.sandbox.envd.room_watch import watch_room


class AGSCare:
    """Orphans are told by their owner, whatever run or unit they are of."""

    env: Mapping[str, str] = {}

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec

    def can_create(self) -> bool:
        """Whether the service answers."""
        return bool(diagnose(self._spec).well)

    def remove_remains(self, _unit: Unit) -> None:
        """Remove all orphans."""
        remove_orphans(find_orphans())

    def finish_unit(self, _unit: Unit) -> None:
        """A sandbox is gone with its unit."""


@contextmanager
def care_for(spec: SandboxSpec, _plan: Plan) -> Iterator[AGSCare]:
    """See ``steps.sandbox.care``."""
    with suppress(StepError):
        remove_orphans(find_orphans())
    try:
        with watch_room(start_refusals(), place()):
            yield AGSCare(spec)
    finally:
        with suppress(StepError):  # of steps that were killed, or told to end while they waited for an answer
            remove_orphans(find_orphans())
