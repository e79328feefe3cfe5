"""What a run leaves that somebody stops while it works: nothing that runs on, and a report that says what is known."""

from __future__ import annotations

import json
from typing import Any

import yaml

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.sandbox.kubernetes.namespace import CONFIG_KEY, CONFIG_MAP, NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import manifest
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.store import open_store
from tests.argo.pipeline import FOUND, Pipeline
from tests.cluster.installed_chart import settles

STOP = '{"spec": {"shutdown": "Stop"}}'


def test_stopped_run_is_explained(pipeline: Pipeline) -> None:
    run = "r-ended"
    # More than one shard, and most of their units wait: those are ended otherwise than what runs.
    name = pipeline.submit(run, agent="idle", attempts=5)
    pipeline.running(f"swe-argo/run={run},swe-argo/step=grade", "main")
    assert settles(lambda: len(pipeline.children(name)) == 2), pipeline.describe(name)
    pipeline.kubectl("create", "-f", "-", input=make_orphan(pipeline, run))
    pipeline.kubectl("patch", "workflow", name, "--type=merge", "-p", STOP)

    assert pipeline.ended(name) == "Failed"
    last = pipeline.node(name, f"{name}.onExit")
    assert last["phase"] == "Succeeded", pipeline.describe(name)
    phases = {child: pipeline.workflow(child)["status"]["phase"] for child in pipeline.children(name)}
    # Error, too: Argo 4.1.2 panics (and gets over it) where it stops a fan-out that has not begun all its units.
    assert set(phases.values()) <= {"Failed", "Error"}, phases
    assert running(pipeline, name) == []
    assert pipeline.sandboxes() == []
    assert settles(lambda: pipeline.places() == 0), "what nobody works on any more keeps places of those who wait"

    store = open_store(pipeline.store)
    report = Summary.from_bytes(store.get(key(Summary, run)))
    planned = Plan.from_bytes(store.get(key(Plan, run))).units
    assert report.units == len(planned) == 60
    assert report.headline.total == 60
    assert not report.complete
    assert report.outcomes["not_run"] >= 40  # the other shard, at least most of it
    assert sum(report.outcomes.values()) == 60
    assert set(report.failures) <= {"step_killed"}, report.without_verdict
    assert outcome(last) == report.word


def test_finalize_keeps_the_outcome(pipeline: Pipeline) -> None:
    name = pipeline.submit("r-well", agent="gold", k=1)
    pipeline.succeeds(name)
    last = pipeline.node(name, f"{name}.onExit")
    assert outcome(last) == outcome(pipeline.node(name, "report")) == "resolved 1 of 1"


def make_orphan(pipeline: Pipeline, run: str) -> dict[str, Any]:
    """A sandbox of the run whose owner is there, but looks after nothing; its image is nowhere."""
    api = "coordination.k8s.io/v1"
    lease = {"apiVersion": api, "kind": "Lease", "metadata": {"name": "idler"}, "spec": {"holderIdentity": "nobody"}}
    created = json.loads(pipeline.kubectl("create", "-o", "json", "-f", "-", input=lease))
    owner = {"apiVersion": api, "kind": "Lease", "name": "idler", "uid": created["metadata"]["uid"]}
    text = pipeline.get_json("configmap", CONFIG_MAP)["data"][CONFIG_KEY]
    labels = {"role": "solve", "run": run, "instance": "x", "attempt": "1"}
    request = SandboxRequest(name="sb-stray", image="localhost/none:1", deadline_s=3600, network=False, labels=labels)
    spec = SandboxSpec(backend="kubernetes")
    return manifest(request, NamespaceSettings.model_validate(yaml.safe_load(text)), spec, owner)


def running(pipeline: Pipeline, name: str) -> list[str]:
    """Pods of the run's Workflow and its shards that have not ended."""
    workflows = ",".join([name, *pipeline.children(name)])
    pods = pipeline.pods(f"{FOUND} in ({workflows})")
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def outcome(node: dict[str, Any]) -> str:
    """The word that a step's node shows."""
    (word,) = [parameter["value"] for parameter in node["outputs"]["parameters"] if parameter["name"] == "outcome"]
    return str(word)
