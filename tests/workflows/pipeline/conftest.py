"""Every property is asked of the committed files, and of what the chart makes of them."""

from __future__ import annotations

import pytest

from tests.workflows.pipeline.rendered import Manifests, committed, of_chart


@pytest.fixture(params=["committed", "chart"])
def argo(request: pytest.FixtureRequest) -> Manifests:
    return committed() if request.param == "committed" else of_chart()
