"""Diagnosis of sandboxes on this machine itself."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.local import bubblewrap, resource_limits


def diagnose(_spec: SandboxSpec) -> Diagnosis:
    """Diagnose this machine: local sandboxes work everywhere, if without isolation. Never raises."""
    problem = bubblewrap.probe()
    if problem is None:
        return Diagnosis(True, f"isolated by bubblewrap; {resource_limits.promise()}")
    mend = f"without isolation ({problem}); agents that run commands need bubblewrap, docker or --allow-host"
    return Diagnosis(True, "gold, given and idle", mend)
