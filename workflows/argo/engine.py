"""Where Workflows live: the Kubernetes API, or an argo-server in front of it. All else here asks one of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from swe_argo.steps.contracts.workflow_marks import ENDED

Plain = dict[str, Any]
"""An object as its API has it."""


class Invisible(Enum):
    """There may be such an object, but these rights, or this API, do not show it: no ground to refuse a spec."""

    UNSEEN = "unseen"


UNSEEN = Invisible.UNSEEN
LOG_LINES = 20
"""Of a pod's log that are read: a step says how far it has come in a line of its own."""
STEP_CONTAINER = "main"
"""The container of a pod in which Argo runs a step."""


@dataclass(frozen=True)
class WorkflowHeader:
    """A Workflow without its body: enough to know whether the body is worth asking for."""

    name: str
    version: str
    """Changes whenever anything of it does (resourceVersion)."""
    phase: str
    labels: dict[str, str]
    created: str

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.phase in ENDED


class Engine(Protocol):
    """Workflows of one namespace.

    Every method raises InfraError where nothing answers, ConfigError where the answer is a refusal: one line each.
    """

    namespace: str
    where: str
    """For words: the namespace, and whose."""

    def close(self) -> None:
        """Give connections back."""

    def fitness(self) -> list[str]:
        """What a person should know of the Argo there. Raises ConfigError: none, or one before 4.1."""

    def see(self, kind: str, name: str) -> Plain | Invisible | None:
        """An object by its kind's plural (``configmaps``); None: it is not there."""

    def see_all(self, kind: str) -> list[Plain] | Invisible:
        """All objects of a kind in the namespace."""

    def glance(self, selector: str) -> list[WorkflowHeader]:
        """The Workflows with these labels, oldest first."""

    def workflow(self, name: str) -> Plain | None:
        """A whole Workflow; None where it is gone."""

    def log_end(self, workflow: str, pod: str) -> str:
        """The last lines that a step printed. Raises nothing: empty where there is no log, or none to be seen."""

    def create(self, workflow: Plain) -> None:
        """Make a Workflow. One of that name that is there already is taken for this one: a reply was lost."""

    def stop(self, name: str, *, waits: bool = False) -> None:
        """Ask a Workflow to stop: what runs is ended, its exit handler runs. One that is gone is no error.

        One that ``waits``, for a lock or its turn, hears only that it is terminated; it has nothing to put away.
        """

    def remove(self, name: str) -> None:
        """Delete a Workflow, and with it what it owns. One that is gone is no error."""

    def change_cron(self, name: str, spec: Plain) -> None:
        """Change these fields of a CronWorkflow's spec."""
