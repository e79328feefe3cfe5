from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.reports.official.predictions import predictions
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic


def test_predictions_load_in_swebench(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=30, hostile=True).write(store)
    view = read_run(store, "synthetic")
    file = tmp_path / "preds.jsonl"
    file.write_bytes(predictions(view.units, "lab/model-1"))
    get_predictions = pytest.importorskip("swebench.harness.utils").get_predictions_from_file
    loaded = get_predictions(str(file), "unused", "test")
    assert len(loaded) == sum(unit.patch is not None for unit in view.units) > 20
    patches = {unit.instance_id: unit.patch for unit in view.units}
    for line in loaded:
        assert set(line) == {"instance_id", "model_name_or_path", "model_patch"}
        assert Patch.from_text(line["model_patch"]).data == patches[line["instance_id"]]


def test_predictions_keep_bytes(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=10, hostile=True, mix={"unresolved": 1, "not_run": 1, "empty_patch": 1}).write(store)
    written = predictions(read_run(store, "synthetic").units, "m")
    assert written.isascii()
    assert all(json.loads(line)["model_name_or_path"] == "m" for line in written.splitlines())
    assert b'"model_patch": ""' in written
