"""What is installed: pinned, and set as a fan-out needs it."""

from __future__ import annotations

import re
from typing import Any

from tests.eks.files import EKS, setting, values
from tests.paths import ROOT

TEMPLATES = ROOT / "templates" / "argo"


def test_versions_are_pinned_and_agree(cluster: dict[str, Any]) -> None:
    argo, kubernetes = values("argo-values.yaml"), cluster["metadata"]["version"]
    assert argo["images"]["tag"] == setting("ARGO_VERSION")
    assert f"/{setting('ARGO_VERSION')}/" in argo["crds"]["upgradeJob"]["crdBaseURL"]
    assert values("autoscaler-values.yaml")["image"]["tag"].startswith(f"v{kubernetes}.")
    for name in ("ARGO_CHART", "AUTOSCALER_CHART", "KARPENTER"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", setting(name))
    pinned = (EKS / "deploy").read_text() + (EKS / "karpenter").read_text()
    assert pinned.count("--version") == len(re.findall(r"upgrade --install (?!swe-argo)", pinned))


def test_argo_values_suit_fan_out() -> None:
    argo = values("argo-values.yaml")
    controller = argo["controller"]
    assert argo["crds"]["full"] is True
    assert controller["workflowWorkers"] > controller["podCleanupWorkers"] > controller["workflowTTLWorkers"]
    assert controller["failedPodRestart"]["enabled"] is True
    assert controller["workflowRestrictions"] == {"templateReferencing": "Strict"}
    assert argo["server"]["authModes"] == ["client"]


def test_argo_links_use_workflow_labels() -> None:
    controller = values("argo-values.yaml")["controller"]
    labels = {item["key"] for item in controller["columns"]}
    labels |= {label for item in controller["links"] for label in re.findall(r"swe-argo/[a-z]+", item["url"])}
    rendered = "".join(file.read_text() for file in sorted(TEMPLATES.glob("*.yaml")))
    assert labels == {label for label in labels if label in rendered}


def test_readme_versions_match_settings() -> None:
    readme = (EKS / "README.md").read_text()
    for name in ("ARGO_VERSION", "ARGO_CHART", "AUTOSCALER_CHART", "KARPENTER"):
        assert setting(name).lstrip("v") in readme, name
