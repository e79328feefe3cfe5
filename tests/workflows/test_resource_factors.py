"""Resource factors of sandboxes: a default, and a file of factors by instance."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.workflows.command import QUICK, ids, plan_request


def factors(store: Path) -> dict[str, float]:
    files = sorted(store.glob("runs/r/instances/*/instance.json"))
    return {file.parent.name: json.loads(file.read_text())["resource_factor"] for file in files}


def test_resource_factors_are_planned(tmp_path: Path) -> None:
    mapping, store = tmp_path / "factors.json", tmp_path / "store"
    words = ["--store", str(store), "--run-id", "r", *ids(*QUICK[:2]), "--resource-factors", str(mapping)]
    mapping.write_text(json.dumps({QUICK[0]: 4}))
    plan = plan_request(*words, env={"DEFAULT_RUNTIME_RESOURCE_FACTOR": "2.0"})
    assert factors(store) == {QUICK[0]: 4.0, QUICK[1]: 2.0}
    assert "local has none unless --cpus or --memory-mb sets them" in " ".join(plan.notices)
    hashes = json.loads((store / "runs/r/run.json").read_text())["input_hashes"]
    assert hashes["sandbox.resource_factors"] == hashlib.sha256(mapping.read_bytes()).hexdigest()
    mapping.write_text(json.dumps({QUICK[1]: 0.5}))
    plan_request(*words)
    assert factors(store) == {QUICK[0]: 1.0, QUICK[1]: 0.5}
