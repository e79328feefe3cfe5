"""Every bundled dataset on the real controller: the verdicts of ``swe-argo run --backend local``, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.store import open_store
from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.cluster.disturbances import recordings
from tests.steps.families.bundled import DATASETS
from tests.workflows.command import HONEST, QUICK, ids, summary


@pytest.mark.parametrize(("dataset", "size"), {"mini": 12, **DATASETS}.items())
def test_gold_has_equal_verdicts(dataset: str, size: int, tmp_path: Path, pipeline: Pipeline) -> None:
    run = f"{dataset}-gold".replace(":", "-")
    name = pipeline.submit(run, dataset=dataset, agent="gold")
    ruler = local(tmp_path, run, "--dataset", dataset, "--agent", "gold") if bubblewrap.probe() is None else None
    pipeline.succeeds(name)
    assert summary(pipeline.store, run).headline.resolved == size, pipeline.describe(name)
    if ruler is not None:
        assert_same_outcome(RunOutcome.of(pipeline.store, run), ruler)
    assert pipeline.sandboxes() == []


def test_recorded_actions_are_replayed(tmp_path: Path, pipeline: Pipeline) -> None:
    acts = Path(recordings(tmp_path / "trajectories", QUICK[:2]))
    run_spec = {"agent": {"trajectories": pipeline.upload(acts, "recorded")}, "select": {"instance_ids": QUICK[:2]}}
    name = pipeline.submit("r-replay", agent="replay", spec=run_spec)
    words = ["--trajectories", str(acts), *ids(*QUICK[:2])]
    ruler = local(tmp_path / "local", "r-replay", *words)
    pipeline.succeeds(name)
    assert summary(pipeline.store, "r-replay").headline.resolved == 2
    assert_same_outcome(RunOutcome.of(pipeline.store, "r-replay"), ruler)
    for instance in QUICK[:2]:
        graded = open_store(pipeline.store).get(key(GradeRecord, "r-replay", instance, 1))
        proof = GradeRecord.from_bytes(graded).confirmation
        assert proof is not None
        assert proof.outcome in HONEST, proof
    assert pipeline.sandboxes() == []


def test_run_grows_by_new_units(pipeline: Pipeline) -> None:
    run, verdict = "r-grown", key(GradeRecord, "r-grown", QUICK[0], 1)
    select = [{"select": {"instance_ids": QUICK[:count]}} for count in (1, 2)]
    pipeline.succeeds(pipeline.submit(run, agent="gold", spec=select[0]))
    first = open_store(pipeline.store).get(verdict)
    pipeline.succeeds(pipeline.submit(run, agent="gold", spec=select[1], attempts=2))
    assert open_store(pipeline.store).get(verdict) == first
    figures = summary(pipeline.store, run)
    assert (figures.units, figures.outcomes["resolved"]) == (4, 4)
    fewer = pipeline.submit(run, agent="gold", spec=select[0], attempts=2)
    assert pipeline.ended(fewer) == "Failed"
    assert open_store(pipeline.store).get(verdict) == first
    assert pipeline.sandboxes() == []
