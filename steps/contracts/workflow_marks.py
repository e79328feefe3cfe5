"""Labels, annotations and phases of Workflows and their pods: what templates write there, and clients read."""

from __future__ import annotations

from enum import StrEnum

API_VERSION = "argoproj.io/v1alpha1"

RUN, KIND, PARENT, SHARD = "swe-argo/run", "swe-argo/kind", "swe-argo/parent", "swe-argo/shard"
"""Labels of Workflows: the run's id, what it is (evaluate, shard, train, round), and on what another Workflow made that
one's name; on shards their own number."""
TRAINING, ROUND = "swe-argo/training", "swe-argo/round"
"""Labels of a training's Workflows: its name, and on what belongs to one of its steps that one's number, six digits."""
STEP = "swe-argo/step"
"""Label of a step's pod, beside the run's."""
NIGHTLY = "swe-argo/nightly"
"""Label of the runs that the CronWorkflow began."""

_ARGO = "workflows.argoproj.io"
PHASE, COMPLETED = f"{_ARGO}/phase", f"{_ARGO}/completed"
"""Labels that Argo keeps on every Workflow, so that they can be seen without its body: ``true`` when it is final."""
BY_CRON = f"{_ARGO}/cron-workflow"
"""Label that Argo puts on what a CronWorkflow started."""
TITLE, DESCRIPTION, DISPLAY_NAME = f"{_ARGO}/title", f"{_ARGO}/description", f"{_ARGO}/display-name"
"""Annotations that Argo's pages show."""


class Phase(StrEnum):
    """Of a Workflow or a node (argo-workflows, pkg/apis/workflow/v1alpha1: WorkflowPhase, NodePhase)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    SKIPPED = "Skipped"
    OMITTED = "Omitted"
    FAILED = "Failed"
    ERROR = "Error"


FAILED = (Phase.FAILED, Phase.ERROR)
ENDED = (Phase.SUCCEEDED, *FAILED)
"""Phases of a Workflow that nothing follows (WorkflowPhase.Completed)."""
NOT_RUN = (Phase.SKIPPED, Phase.OMITTED)


def runs_of(run_id: str) -> str:
    """Selector of the Workflows that are this run, or were."""
    return f"{RUN}={run_id},{KIND}=evaluate"


def shards_of(parent: str) -> str:
    """Selector of a Workflow's parts."""
    return f"{KIND}=shard,{PARENT}={parent}"


def trainings_of(name: str) -> str:
    """Selector of the Workflows that are this training, or were."""
    return f"{TRAINING}={name},{KIND}=train"


def rounds_of(parent: str) -> str:
    """Selector of the steps of a training's Workflow."""
    return f"{KIND}=round,{PARENT}={parent}"


def made_by(parent: str) -> str:
    """Selector of all Workflows that this one made."""
    return f"{PARENT}={parent}"
