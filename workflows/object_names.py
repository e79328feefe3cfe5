"""Names of Kubernetes objects that the chart, the WorkflowTemplates and the command line share."""

from __future__ import annotations

import re
import secrets

EVALUATE, SHARD, NIGHTLY = "swe-argo-evaluate", "swe-argo-shard", "swe-argo-nightly"
"""WorkflowTemplates of a run and of its shards; the CronWorkflow."""
TRAIN, ROUND = "swe-argo-train", "swe-argo-round"
"""WorkflowTemplates of a training and of one of its steps."""
SETTINGS, LIMITS, ARTIFACTS = "swe-argo-settings", "swe-argo-limits", "swe-argo-artifacts"
"""ConfigMaps of the chart."""
NO_SECRET = "swe-argo-no-secret"  # noqa: S105 - the name of a Secret that never exists
"""Placeholder in settings without a Secret."""
SUBMITTER = "swe-argo-submitter"
"""The chart's Role with all permissions that these commands need."""

_MAX_LENGTH = 50
"""Maximum characters of the run's part of a Workflow name; a dash and five random characters follow."""


def workflow_name(run: str) -> str:
    """Return a new Workflow name for this run: at most 56 characters, so that ``-s00017`` fits into Kubernetes' 63."""
    head = re.sub(r"[^a-z0-9-]+", "-", run.lower())[:_MAX_LENGTH].strip("-") or "run"
    return f"{head}-{secrets.token_hex(3)[:5]}"
