"""What sandboxes may take: a base for all, other factors for some, and both may change when a run goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.workflows.command import QUICK, ids, swe_argo


def factors(store: Path) -> dict[str, float]:
    files = sorted(store.glob("runs/r/instances/*/instance.json"))
    return {file.parent.name: json.loads(file.read_text())["resource_factor"] for file in files}


@pytest.mark.long
def test_resource_factors_are_applied(tmp_path: Path) -> None:
    mapping = tmp_path / "factors.json"
    mapping.write_text(json.dumps({QUICK[0]: 4}))
    store = tmp_path / "store"
    words = ["run", "--store", str(store), "--run-id", "r", *ids(*QUICK[:2])]
    env = {"DEFAULT_RUNTIME_RESOURCE_FACTOR": "2.0"}
    result = swe_argo(*words, "--resource-factors", str(mapping), env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert factors(store) == {QUICK[0]: 4.0, QUICK[1]: 2.0}
    assert "local has none unless --cpus or --memory-mb sets them" in result.stdout
    recorded = json.loads((store / "runs/r/run.json").read_text())["input_hashes"]
    assert recorded["sandbox.resource_factors"] == hashlib.sha256(mapping.read_bytes()).hexdigest()

    mapping.write_text(json.dumps({QUICK[1]: 0.5}))
    again = swe_argo(*words, "--resource-factors", str(mapping))
    assert again.returncode == 0, again.stdout + again.stderr
    assert factors(store) == {QUICK[0]: 1.0, QUICK[1]: 0.5}
    assert "0 units to do" in again.stdout
