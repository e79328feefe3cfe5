"""Names that the chart, the WorkflowTemplates and a person's commands share."""

from __future__ import annotations

import re
import secrets

EVALUATE, SHARD, NIGHTLY = "swe-argo-evaluate", "swe-argo-shard", "swe-argo-nightly"
"""WorkflowTemplates of a run and of its parts; the CronWorkflow."""
TRAIN, ROUND = "swe-argo-train", "swe-argo-round"
"""WorkflowTemplates of a training and of one of its steps."""
SETTINGS, LIMITS, ARTIFACTS = "swe-argo-settings", "swe-argo-limits", "swe-argo-artifacts"
"""ConfigMaps of the chart."""
NO_SECRET = "swe-argo-no-secret"  # noqa: S105 - the name of a Secret that never is there
"""What the settings say where they name no Secret."""
SUBMITTER = "swe-argo-submitter"
"""Role of the chart with all that a person needs here."""

_LONGEST = 50


def workflow_name(run: str) -> str:
    """A fresh name for a Workflow of this run: at most 56 characters, so that ``-s00017`` fits into Kubernetes' 63."""
    head = re.sub(r"[^a-z0-9-]+", "-", run.lower())[:_LONGEST].strip("-") or "run"
    return f"{head}-{secrets.token_hex(3)[:5]}"
