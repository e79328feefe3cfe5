from __future__ import annotations

import pytest

from tests.workflows.pipeline.rendered import Manifests, committed


@pytest.fixture
def argo() -> Manifests:
    """The committed files; tests/charts/test_pipeline.py shows that the chart installs these."""
    return committed()
