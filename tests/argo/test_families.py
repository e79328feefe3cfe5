"""The bundled example of every family through the real controller: the verdicts of ``swe-argo run``, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.steps.families.bundled import DATASETS
from tests.workflows.command import summary


@pytest.mark.parametrize(("dataset", "size"), DATASETS.items())
def test_gold_resolves(dataset: str, size: int, tmp_path: Path, pipeline: Pipeline) -> None:
    run = f"{dataset}-gold".replace(":", "-")
    name = pipeline.submit(run, dataset=dataset, agent="gold")
    ruler = local(tmp_path, run, "--dataset", dataset, "--agent", "gold") if bubblewrap.probe() is None else None
    pipeline.succeeds(name)
    assert summary(pipeline.store, run).headline.resolved == size, pipeline.describe(name)
    if ruler is not None:
        assert_same_outcome(RunOutcome.of(pipeline.store, run), ruler)
    assert pipeline.sandboxes() == []
