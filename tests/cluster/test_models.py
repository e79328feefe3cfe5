"""Agents that ask a model, their sandboxes pods: each scaffold in both formats, asked from this side of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import solutions
from tests.cluster.installed_chart import InstalledChart
from tests.cluster.model_runs import assert_resolved
from tests.workflows.models.test_scaffolds import ways

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@ways
def test_model_fixes_an_issue_in_a_pod(
    scaffold: str, fn_calling: bool, instance: str, tmp_path: Path, installed: InstalledChart
) -> None:
    script = solutions.solving(scaffold, fn_calling=fn_calling)
    flags = ["--agent", scaffold, "--use-fn-calling", str(fn_calling).lower()]
    assert_resolved(installed, tmp_path, script, instance, *flags)
