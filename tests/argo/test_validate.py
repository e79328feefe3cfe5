"""A validation, and a run's canary, on a real Argo."""

from __future__ import annotations

import json

import pytest

from swe_argo.steps.contracts.validation import Fitness, Validation, validation_key
from swe_argo.steps.datasets.load import load
from swe_argo.steps.store import open_store
from tests.argo.pipeline import Pipeline
from tests.workflows.command import QUICK, ids, plan, summary, swe_argo

pytestmark = pytest.mark.usefixtures("use_kubeconfig")

BESIDE = "--- /dev/null\n+++ b/beside.txt\n@@ -0,0 +1 @@\n+beside\n"


def test_validation_is_in_the_bucket(pipeline: Pipeline) -> None:
    words = ("mini", "--argo", "--watch", "--namespace", pipeline.namespace, "--run-id", "fit", "--gold-runs", "2")
    result = swe_argo("validate", *words, *ids(*QUICK[:2]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "fit: 2 of 2 valid; page: s3://" in result.stdout.splitlines()[-1]
    data = open_store(pipeline.store).get(validation_key("mini", "fit"))
    assert Validation.from_bytes(data).counts[Fitness.VALID] == 2


@pytest.mark.parametrize("stops", [False, True])
def test_failed_canary_is_reported(pipeline: Pipeline, stops: bool) -> None:
    """Rows whose reference patch changes nothing that matters are, to the run, machines that are not right."""
    run = f"canary-{'stops' if stops else 'goes-on'}"
    rows = [row | {"patch": BESIDE} for row in load("mini", "test").rows if row["instance_id"] in QUICK[:2]]
    predictions = [
        {"instance_id": row["instance_id"], "model_name_or_path": "m", "model_patch": BESIDE} for row in rows
    ]
    store = open_store(pipeline.store)
    store.put("rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    store.put("preds.json", json.dumps(predictions).encode())
    spec = {"canary": 1, "agent": {"name": "given", "predictions": f"{pipeline.store}/preds.json"}}
    name = pipeline.submit(run, dataset=f"{pipeline.store}/rows.jsonl", spec=spec, stop_on_canary=str(stops).lower())
    pipeline.ended(name)
    figures = summary(pipeline.store, run)
    assert figures.canary is not None
    assert list(figures.canary.failed.values()) == ["unresolved"]
    assert figures.doubts[0].startswith("These machines cannot be trusted")
    assert (figures.outcomes["not_run"], figures.outcomes["unresolved"]) == ((2, 0) if stops else (0, 2))
    assert len(plan(pipeline.store, run).canary) == 1
