"""Lifecycle hooks of the e2b backend."""

from __future__ import annotations

from contextlib import AbstractContextManager

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.e2b.creation import creation_rate
from swe_argo.steps.sandbox.e2b.diagnosis import diagnose
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.envd.hooks import ProviderHooks, provider_hooks


def run_hooks(spec: SandboxSpec, _plan: Plan) -> AbstractContextManager[ProviderHooks]:
    """Return the hooks of a run, see ``swe_argo.steps.sandbox.hooks``."""
    return provider_hooks(e2b_sandboxes(), creation_rate(spec).refusals, lambda: bool(diagnose(spec).well))
