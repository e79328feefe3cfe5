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


def test_a_run_that_is_stopped_at_work_is_ended_swept_and_explained(pipeline: Pipeline) -> None:
    run = "r-ended"
    # More than one shard, and most of their units wait: those are ended otherwise than what runs.
    name = pipeline.submit(run, agent="idle", attempts=5)
    pipeline.running(f"swe-argo/run={run},swe-argo/step=grade", "main")
    assert settles(lambda: len(pipeline.children(name)) == 2, 60), pipeline.told(name)
    pipeline.kubectl("create", "-f", "-", input=stray(pipeline, run))
    pipeline.kubectl("patch", "workflow", name, "--type=merge", "-p", STOP)

    assert pipeline.ended(name) == "Failed"
    last = pipeline.node(name, f"{name}.onExit")
    assert last["phase"] == "Succeeded", pipeline.told(name)
    phases = {each: pipeline.workflow(each)["status"]["phase"] for each in pipeline.children(name)}
    # Error, too: Argo 4.1.2 panics (and gets over it) where it stops a fan-out that has not begun all its units.
    assert set(phases.values()) <= {"Failed", "Error"}, phases
    assert running(pipeline, name) == []
    assert pipeline.sandboxes() == []
    assert settles(lambda: pipeline.places() == 0, 30), "what nobody works on any more keeps places of those who wait"

    store = open_store(pipeline.store)
    told = Summary.from_bytes(store.get(key(Summary, run)))
    planned = Plan.from_bytes(store.get(key(Plan, run))).units
    assert told.units == len(planned) == 60
    assert told.headline.total == 12
    assert not told.complete
    assert told.outcomes["not_run"] >= 40  # the other shard, at least most of it
    assert sum(told.outcomes.values()) == 60
    assert set(told.failures) <= {"step_killed"}, told.without_verdict
    assert outcome(last) == told.word


def test_nothing_is_left_to_do_after_a_run_that_went_well(pipeline: Pipeline) -> None:
    name = pipeline.submit("r-well", agent="gold", k=1)
    pipeline.succeeds(name)
    last = pipeline.node(name, f"{name}.onExit")
    assert outcome(last) == outcome(pipeline.node(name, "report")) == "resolved 1 of 1"


def stray(pipeline: Pipeline, run: str) -> dict[str, Any]:
    """A sandbox of the run whose owner is there, but looks after nothing; its image is nowhere."""
    api = "coordination.k8s.io/v1"
    lease = {"apiVersion": api, "kind": "Lease", "metadata": {"name": "idler"}, "spec": {"holderIdentity": "nobody"}}
    made = json.loads(pipeline.kubectl("create", "-o", "json", "-f", "-", input=lease))
    owner = {"apiVersion": api, "kind": "Lease", "name": "idler", "uid": made["metadata"]["uid"]}
    text = pipeline.got("configmap", CONFIG_MAP)["data"][CONFIG_KEY]
    labels = {"role": "solve", "run": run, "instance": "x", "attempt": "1"}
    request = SandboxRequest(name="sb-stray", image="localhost/none:1", deadline_s=3600, network=False, labels=labels)
    spec = SandboxSpec(backend="kubernetes")
    return manifest(request, NamespaceSettings.model_validate(yaml.safe_load(text)), spec, owner)


def running(pipeline: Pipeline, name: str) -> list[str]:
    """Pods of the run's Workflow and its shards that have not ended."""
    whose = ",".join([name, *pipeline.children(name)])
    found = pipeline.pods(f"{FOUND} in ({whose})")
    return [each["metadata"]["name"] for each in found if each["status"]["phase"] in ("Pending", "Running")]


def outcome(node: dict[str, Any]) -> str:
    """The word that a step's node shows."""
    (word,) = [each["value"] for each in node["outputs"]["parameters"] if each["name"] == "outcome"]
    return str(word)
