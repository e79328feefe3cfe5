"""Diagnosis of local sandboxes."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.local import bubblewrap, resource_limits


def diagnose(_spec: SandboxSpec) -> Diagnosis:
    """Return whether this machine has isolation and limits for local sandboxes. Never raises."""
    problem = bubblewrap.probe()
    if problem is None:
        return Diagnosis(True, f"isolated by bubblewrap; {resource_limits.describe_limits()}")
    mend = f"no isolation ({problem}); agents that run commands need bubblewrap, docker or --allow-host"
    return Diagnosis(True, "works for the agents gold, given and idle", mend)
