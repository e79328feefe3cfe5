"""Cost of a confirmation: two more runs of a resolved unit of mini beside its first one."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets.load import load
from swe_argo.steps.store import open_store

INSTANCE = "mini__slugkit-1"
"""It has four FAIL_TO_PASS tests with sites or more: two runs are enough."""
RUNS = 2
ROUNDS = 5


def measure() -> dict[str, float]:
    """Return seconds of an official grade, and of its confirmation by known twins in such grades.

    Both are of the same step, so that other work on the machine slows both.
    """
    with tempfile.TemporaryDirectory() as folder:
        row = next(row for row in load("mini", "test").rows if row["instance_id"] == INSTANCE)
        predictions = Path(folder) / "preds.json"
        predictions.write_text(
            json.dumps([{"instance_id": INSTANCE, "model_name_or_path": "m", "model_patch": row["patch"]}])
        )
        # The first run validates the twins, which the others find in the store.
        grades = [_grade(folder, predictions, f"round-{number}") for number in range(ROUNDS + 1)][1:]
    official = [sum(grade.seconds[stage] for stage in ("create", "apply", "tests", "grade")) for grade in grades]
    confirming = [grade.seconds["confirmation"] for grade in grades]
    return {
        "grade_s": statistics.median(official),
        "confirmation_to_grade": statistics.median(c / o for c, o in zip(confirming, official, strict=True)),
    }


def _grade(folder: str, predictions: Path, run: str) -> GradeRecord:
    words = ["--store", folder, "--run-id", run, "--predictions", str(predictions), "--instance", INSTANCE]
    subprocess.run(
        [sys.executable, "-m", "swe_argo.workflows.cli.main", "run", *words], check=True, capture_output=True
    )
    grade = GradeRecord.from_bytes(open_store(folder).get(key(GradeRecord, run, INSTANCE, 1)))
    if grade.confirmation is None or grade.confirmation.runs != RUNS:
        raise RuntimeError(f"the reference patch was not confirmed in {RUNS} runs: {grade.confirmation}")
    return grade
