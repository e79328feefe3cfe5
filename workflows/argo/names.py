"""Names that the chart, the WorkflowTemplates and a person's commands share."""

from __future__ import annotations

import re
import secrets

EVALUATE, SHARD, NIGHTLY = "swe-argo-evaluate", "swe-argo-shard", "swe-argo-nightly"
"""WorkflowTemplates of a run and of its parts; the CronWorkflow."""
SETTINGS, LIMITS, ARTIFACTS = "swe-argo-settings", "swe-argo-limits", "swe-argo-artifacts"
"""ConfigMaps of the chart."""
NO_SECRET = "swe-argo-no-secret"  # noqa: S105 - the name of a Secret that never is there
"""What the settings say where they name no Secret."""
SUBMITTER = "swe-argo-submitter"
"""Role of the chart with all that a person needs here."""

RUN, KIND, PARENT, NUMBER = "swe-argo/run", "swe-argo/kind", "swe-argo/parent", "swe-argo/shard"
"""Labels of Workflows: the run's id, evaluate or shard, and on shards the parent's name and their own number."""
BY_CRON = "workflows.argoproj.io/cron-workflow"
"""Label that Argo puts on what a CronWorkflow started."""
PHASE = "workflows.argoproj.io/phase"
"""Label that Argo keeps on every Workflow, so that its phase can be seen without its body."""

ENDED = ("Succeeded", "Failed", "Error")
"""Phases that nothing follows (argo-workflows, pkg/apis/workflow/v1alpha1, WorkflowPhase.Completed)."""

_LONGEST = 50


def runs_of(run: str) -> str:
    """Selector of the Workflows that are this run, or were."""
    return f"{RUN}={run},{KIND}=evaluate"


def shards_of(parent: str) -> str:
    """Selector of a Workflow's parts."""
    return f"{KIND}=shard,{PARENT}={parent}"


def workflow_name(run: str) -> str:
    """A fresh name for a Workflow of this run: at most 56 characters, so that ``-s00017`` fits into Kubernetes' 63."""
    head = re.sub(r"[^a-z0-9-]+", "-", run.lower())[:_LONGEST].strip("-") or "run"
    return f"{head}-{secrets.token_hex(3)[:5]}"
