"""A run whose sandbox is a pod and whose model is a script: what is recorded, held against what the server counted."""

from __future__ import annotations

import json
from pathlib import Path

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.store import open_store
from tests.cluster.installed_chart import InstalledChart, leftovers
from tests.model_server import Script, model_server
from tests.workflows.command import ids, summary, swe_argo
from tests.workflows.models.run import KEY, environment, files_with


def run_words(store: Path, instance: str, *flags: str) -> list[str]:
    words = ["run", "--store", str(store), "--run-id", "r", "--backend", "kubernetes", *ids(instance)]
    return [*words, "--model", "openai/scripted", *flags]


def assert_resolved(installed: InstalledChart, store: Path, script: Script, instance: str, *flags: str) -> None:
    """Run it: the issue is resolved, all calls are counted, no key is told and nothing is left."""
    with model_server(script, key=KEY) as server:
        result = swe_argo(*run_words(store, instance, *flags), env=environment(server) | installed.environment)
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((store / "runs" / "r" / "units" / instance / "1" / "report.json").read_text())
    assert report[instance]["resolved"] is True
    usage = summary(str(store), "r").cost.usage
    mine = (usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens)
    assert mine == (counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens)
    solved = SolveRecord.from_bytes(open_store(str(store)).get(key(SolveRecord, "r", instance, 1)))
    assert solved.stop_reason is StopReason.FINISHED
    assert (solved.machine.backend, solved.machine.network) == ("kubernetes", False)
    assert files_with(store, KEY) == []
    assert KEY not in installed.kubectl("get", "pods,leases,configmaps,events", "-o", "yaml")
    assert leftovers(installed) == []
