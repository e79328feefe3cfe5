"""Lifecycle hooks of the ags backend."""

from __future__ import annotations

from contextlib import AbstractContextManager

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.ags.diagnosis import diagnose
from swe_argo.steps.sandbox.ags.orphans import ags_sandboxes
from swe_argo.steps.sandbox.ags.start import start_refusals
from swe_argo.steps.sandbox.envd.care import ProviderCare, care_at


def care_for(spec: SandboxSpec, _plan: Plan) -> AbstractContextManager[ProviderCare]:
    """Return the hooks of a run, see ``swe_argo.steps.sandbox.care``."""
    return care_at(ags_sandboxes(), start_refusals(), lambda: bool(diagnose(spec).well))
