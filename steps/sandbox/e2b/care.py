"""What a run at E2B needs beside sandboxes."""

from __future__ import annotations

from contextlib import AbstractContextManager

from steps.contracts.data import Plan
from steps.contracts.sandbox_spec import SandboxSpec
from steps.sandbox.e2b.creation import creation_rate
from steps.sandbox.e2b.diagnosis import diagnose
from steps.sandbox.e2b.orphans import e2b_sandboxes
from steps.sandbox.envd.care import ProviderCare, care_at


def care_for(spec: SandboxSpec, _plan: Plan) -> AbstractContextManager[ProviderCare]:
    """See ``steps.sandbox.care``."""
    return care_at(e2b_sandboxes(), creation_rate(spec).refusals, lambda: bool(diagnose(spec).well))
