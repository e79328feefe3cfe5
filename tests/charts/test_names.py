"""What README and chart call the image of the steps is what ``make build`` calls it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.paths import ROOT

PAGES = ["README.md", "charts/swe-argo/README.md", "charts/swe-argo/values.yaml"]


@pytest.mark.parametrize("page", PAGES)
def test_steps_image_name_matches_build(page: str) -> None:
    registry = {"IMAGE_REGISTRY": "registry.example.com/team"}
    words = ["bash", "images/build", "names", "steps"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IMAGE_")}
    result = subprocess.run(words, cwd=ROOT, env=environment | registry, capture_output=True, text=True, check=True)
    repository, _, tag = result.stdout.strip().rpartition(":")
    assert repository in (ROOT / page).read_text()
    assert f"appVersion: {tag}\n" in (ROOT / "charts" / "swe-argo" / "Chart.yaml").read_text()
