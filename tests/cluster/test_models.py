"""Agents that ask a model, their sandboxes pods: each scaffold in both formats, asked from this side of the cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.store import open_store
from tests import solutions
from tests.cluster.installed_chart import InstalledChart, leftovers
from tests.model_server import model_server
from tests.workflows.command import ids, summary, swe_argo
from tests.workflows.models.run import KEY, environment, files_with
from tests.workflows.models.test_scaffolds import ways

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@ways
def test_model_fixes_an_issue_in_a_pod(
    scaffold: str, fn_calling: bool, instance: str, tmp_path: Path, installed: InstalledChart
) -> None:
    words = ["run", "--store", str(tmp_path / "store"), "--run-id", "r", "--backend", "kubernetes", *ids(instance)]
    words += ["--agent", scaffold, "--model", "openai/scripted", "--use-fn-calling", str(fn_calling).lower()]
    with model_server(solutions.solving(scaffold, fn_calling=fn_calling), key=KEY) as server:
        result = swe_argo(*words, env=environment(server) | installed.environment)
        counts = server.counts
    assert result.returncode == 0, result.stdout + result.stderr
    store = tmp_path / "store"
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
