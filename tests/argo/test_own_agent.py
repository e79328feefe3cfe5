"""An agent of one's own on a real Argo: the steps' image is one's own, which holds its package."""

from __future__ import annotations

from pathlib import Path

from tests.argo.image import TAG, load_pipeline_image
from tests.argo.pipeline import Pipeline
from tests.charts.chart import CHART
from tests.cluster.release import run_helm
from tests.workflows.command import ids, summary, swe_argo
from tests.workflows.test_own_agent import INSTANCE, package

OWN_TAG = f"{TAG}-own"


def upgrade(pipeline: Pipeline, tag: str) -> None:
    """The line of docs/add-an-agent.md."""
    words = ["upgrade", "swe-argo", str(CHART), "-n", pipeline.namespace, "--reuse-values"]
    words += ["--set", "plugins={own_package.agents:Fixer}", "--set-string"]
    result = run_helm(pipeline.cluster, *words, f"image.tag={tag}")
    assert result.returncode == 0, result.stderr


def test_agent_of_own_image_is_graded(pipeline: Pipeline, tmp_path: Path, use_kubeconfig: None) -> None:
    env = package(tmp_path)
    files = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.py")}
    load_pipeline_image(pipeline.cluster, tag=OWN_TAG, own=files)
    words = ["--namespace", pipeline.namespace, "--run-id", "own", "--agent", "own_package.agents:Fixer"]
    words += ids(INSTANCE)
    missing = swe_argo("submit", *words)
    assert (missing.returncode, "there is no module own_package here" in missing.stderr) == (64, True), missing.stderr
    upgrade(pipeline, OWN_TAG)
    try:
        result = swe_argo("submit", *words, "--watch", env=env)
    finally:
        upgrade(pipeline, TAG)
    assert result.returncode == 0, result.stdout + result.stderr
    report = summary(pipeline.store, "own")
    assert report.headline.resolved == 1
    assert (report.conditions.agent, report.conditions.kind) == ("Fixer", "agent")
