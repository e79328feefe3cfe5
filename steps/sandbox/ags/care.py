"""What a run at AGS needs beside sandboxes."""

from __future__ import annotations

from contextlib import AbstractContextManager

from steps.contracts.data import Plan
from steps.contracts.sandbox_spec import SandboxSpec
from steps.sandbox.ags.diagnosis import diagnose
from steps.sandbox.ags.orphans import ags_sandboxes
from steps.sandbox.ags.start import start_refusals
from steps.sandbox.envd.care import ProviderCare, care_at


def care_for(spec: SandboxSpec, _plan: Plan) -> AbstractContextManager[ProviderCare]:
    """See ``steps.sandbox.care``."""
    return care_at(ags_sandboxes(), start_refusals(), lambda: bool(diagnose(spec).well))
