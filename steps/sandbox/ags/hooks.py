"""Lifecycle hooks of the ags backend."""

from __future__ import annotations

from contextlib import AbstractContextManager

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.ags.diagnosis import diagnose
from swe_argo.steps.sandbox.ags.orphans import ags_sandboxes
from swe_argo.steps.sandbox.ags.start import start_refusals
from swe_argo.steps.sandbox.envd.hooks import ProviderHooks, provider_hooks


def run_hooks(spec: SandboxSpec, _plan: Plan) -> AbstractContextManager[ProviderHooks]:
    """Return the hooks of a run, see ``swe_argo.steps.sandbox.hooks``."""
    return provider_hooks(ags_sandboxes(), start_refusals(), lambda: bool(diagnose(spec).well))
