"""Diagnosis of the E2B account."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.e2b.routes import list_sandboxes
from swe_argo.steps.sandbox.e2b.service import service_address
from swe_argo.steps.settings import settings


def diagnose(_spec: SandboxSpec) -> Diagnosis:
    """Test the key with one small request. Never raises."""
    if settings().e2b_api_key is None:
        return Diagnosis(None, "no key is set", "set E2B_API_KEY to use sandboxes of E2B")
    try:
        next(list_sandboxes({}, limit=1), None)
    except StepError as error:
        return Diagnosis(False, error.reason.removeprefix("sandbox.backend: "))
    return Diagnosis(True, f"{service_address()} accepts the key")
