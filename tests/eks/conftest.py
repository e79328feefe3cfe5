"""The cluster's files, read once."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.eks.files import filled
from tests.paths import ROOT


@pytest.fixture(scope="session")
def cluster() -> dict[str, Any]:
    (document,) = filled("cluster.yaml")
    return document


@pytest.fixture(scope="session")
def chart() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "charts" / "swe-argo" / "values.yaml").read_text())
    return document


@pytest.fixture(scope="session")
def pool() -> dict[str, Any]:
    (match,) = (manifest for manifest in filled("karpenter.yaml") if manifest["kind"] == "NodePool")
    return match


@pytest.fixture(scope="session")
def node_class() -> dict[str, Any]:
    (match,) = (manifest for manifest in filled("karpenter.yaml") if manifest["kind"] == "EC2NodeClass")
    return match
