from __future__ import annotations

import pytest

from swe_argo.steps.contracts.run_spec import LlmSpec
from swe_argo.steps.models.errors import Refusal
from swe_argo.steps.models.request_body import RequestDialect


@pytest.mark.parametrize(("top_p", "learns"), [(1.0, True), (0.9, False)])
def test_refused_default_top_p_is_dropped(top_p: float, learns: bool) -> None:
    """OpenHands and SWE-agent send 1 by default; reasoning models take none."""
    wording = RequestDialect("m", LlmSpec(top_p=top_p))
    body = wording.body([], tools=None, temperature=None, stop=None)
    error = {"message": "Unsupported parameter: 'top_p' is not supported with this model.", "param": "top_p"}
    assert body["top_p"] == top_p
    assert wording.learn(Refusal.of(400, {"error": error}), body) is learns
    assert ("top_p" in wording.body([], tools=None, temperature=None, stop=None)) is not learns
