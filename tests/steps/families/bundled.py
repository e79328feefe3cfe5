"""The bundled datasets of families other than SWE-bench, each graded whole."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.datasets.names import BUNDLED, MINI
from tests.workflows.command import summary, swe_argo

DATASETS = {dataset: 2 for dataset in BUNDLED if dataset != MINI} | {"harbor:mini": 3}
"""Dataset -> how many instances it has."""


def count_resolved(dataset: str, agent: str, store: Path, *more: str, env: dict[str, str] | None = None) -> str:
    """``resolved of total``, after a run that lost nothing and found nothing to doubt."""
    run_id = f"{dataset}-{agent}".replace(":", "-")
    result = swe_argo(
        *("run", "--dataset", dataset, "--agent", agent, "--store", str(store), "--run-id", run_id, *more), env=env
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = summary(str(store), run_id)
    assert report.integrity is None or not report.integrity.suspect, result.stdout
    assert report.headline.graded == report.headline.total, result.stdout
    return f"{report.headline.resolved} of {report.headline.total}"
