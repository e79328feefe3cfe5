"""Machines of a runner: how many at a time, and what is done when one was lost or a dead runner left some."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from swe_argo.steps.contracts.backends import backend_named
from swe_argo.steps.contracts.data import Unit
from swe_argo.steps.errors import StepError, one_line
from swe_argo.steps.host import folders
from swe_argo.steps.sandbox.care import Care
from swe_argo.workflows.local import recovery
from swe_argo.workflows.resources import OUTAGE_POLL_S, OUTAGE_S

MOST = 24
"""Units at a time on one machine, where nobody says otherwise: what the SWE-bench documentation advises."""

REASON_WIDTH = 300
"""Of what a care that failed says."""

T = TypeVar("T")


def default_workers(backend: str = "local", *, asks_model: bool = False) -> int:
    """How many units run at a time.

    On this machine's own cores as many as may be graded there; of units that mostly wait for a model four for each
    core, at most MOST. On a cluster and at a provider the steps here only wait.
    """
    if asks_model and not backend_named(backend).serves_pods:
        return min(4 * (os.cpu_count() or 1), MOST)
    return default_graders(backend)


def default_graders(backend: str = "local") -> int:
    """How many units are graded at a time: tests that share their cores with too many others time out."""
    return 16 if backend_named(backend).serves_pods else max(1, min(int(0.75 * (os.cpu_count() or 1)), MOST))


def remove_leftovers() -> list[str]:
    """Put away what dead runners left, but for what their runs may still want; a line for what cannot be removed."""
    failures = folders.clean(folder for folder in folders.find_orphans() if not recovery.is_worth_keeping(folder))
    return [f"{folder} of an earlier run could not be removed: {reason}" for folder, reason in failures.items()]


def recover(care: Care, unit: Unit, stopping: threading.Event) -> None:
    """A machine of ``unit`` was lost: remove what is left of it.

    While no machine can be had at all it waits, so that an outage does not use up tries.
    """
    remove_leftovers()
    until = time.monotonic() + OUTAGE_S
    while not care.can_create() and time.monotonic() < until and not stopping.wait(OUTAGE_POLL_S):
        continue
    with suppress(StepError):
        care.remove_remains(unit)


class SteadyCare:
    """A care of any make, of which no failure ends a unit or a run: each of its methods says its first on stderr.

    Where it cannot say whether sandboxes can be had, a try is begun: that one will say it.
    """

    def __init__(self, care: Care) -> None:
        self._care = care
        self._failed: set[str] = set()

    @property
    def env(self) -> Mapping[str, str]:
        """As the care has it now."""
        return self._care.env

    def can_create(self) -> bool:
        """As the care says; True where it fails."""
        return self._ask("can_create", self._care.can_create, True)

    def remove_remains(self, unit: Unit) -> None:
        """As the care does it, if it does. Raises StepError alone."""
        self._ask("remove_remains", lambda: self._care.remove_remains(unit), None)

    def finish_unit(self, unit: Unit) -> None:
        """As the care does it, if it does."""
        self._ask("finish_unit", lambda: self._care.finish_unit(unit), None)

    def _ask(self, name: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:
            if isinstance(error, StepError) and name == "remove_remains":
                raise
            if name not in self._failed:
                self._failed.add(name)
                reason = one_line(f"{type(error).__name__}: {error}", REASON_WIDTH)
                sys.stderr.write(f"note: {name} of the backend's care failed, the run goes on: {reason}\n")
            return otherwise
