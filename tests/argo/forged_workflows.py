"""Workflows that an account of the pipeline has no business to make, and what none may change of one that is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.cluster.refused_pods import edit
from tests.cluster.release import Manifest, Release

OWN_SPEC = {
    "entrypoint": "own",
    "serviceAccountName": "swe-argo-runner",
    "templates": [{"name": "own", "container": {"image": "localhost/one:1", "command": ["env"]}}],
}
"""A spec of one's own."""


def workflow(name: str, kind: str, spec: dict[str, Any]) -> Manifest:
    """A Workflow of a controller that is not there: nothing comes of it."""
    labels = {"swe-argo/kind": kind, "workflows.argoproj.io/controller-instanceid": "none"}
    labels |= {"swe-argo/parent": "parent"} if kind == "shard" else {}
    manifest = _make_manifest(name, labels)
    manifest["spec"] |= spec
    return manifest


def shard(release: Release) -> Manifest:
    """A shard of the Workflow ``parent``, as its pod ``child`` makes it."""
    labels = {"kind": "shard", "run": "r", "parent": "parent", "shard": "00001"}
    manifest = _make_manifest("parent-s00001", {f"swe-argo/{key}": value for key, value in labels.items()})
    uid = release.kubectl("get", "workflow", "parent", "-o=jsonpath={.metadata.uid}")
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "parent", "uid": uid}
    manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return manifest


def _make_manifest(name: str, labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "workflowTemplateRef": {"name": "swe-argo-shard"},
            "priority": 0,
            "arguments": {"parameters": [{"name": "run-id", "value": "r"}, {"name": "shard", "value": "00001"}]},
        },
    }


def of_training(release: Release, kind: str) -> Manifest:
    """A step of the training ``parent``, or the run of one, as the account of trainings makes them."""
    labels = {"kind": kind, "parent": "parent", "training": "one", "round": "000001"}
    values = {"training": "one", "step": "000001", "priority": "0", "log-level": "INFO"}
    name = "parent-000001"
    if kind == "evaluate":
        labels["run"] = "one.000001"
        values = {"run-id": "one.000001", "spec": '{"agent": {"name": "gold"}}', "priority": "0", "log-level": "INFO"}
        name = "parent-r"
    manifest = shard(release)
    manifest["metadata"] |= {"name": name, "labels": {f"swe-argo/{key}": value for key, value in labels.items()}}
    template = {"round": "swe-argo-round", "evaluate": "swe-argo-evaluate"}[kind]
    parameters = [{"name": argument, "value": value} for argument, value in values.items()]
    manifest["spec"] = {"workflowTemplateRef": {"name": template}, "arguments": {"parameters": parameters}}
    return manifest


OF_TRAINING_LIES: dict[str, tuple[str, Callable[[Manifest], object], str]] = {
    "a shard": (
        "round",
        edit("metadata", "labels", "swe-argo/kind", to="shard"),
        "swe-argo/kind=round or evaluate only",
    ),
    "another template": (
        "round",
        edit("spec", "workflowTemplateRef", "name", to="swe-argo-train"),
        "each as its label",
    ),
    "a name of its own": ("evaluate", edit("metadata", "name", to="other"), "by the one that it belongs to"),
    "a run of nobody's": ("evaluate", edit("metadata", "labels", "swe-argo/run", to="two.000001"), "training and step"),
    "an account": ("evaluate", edit("spec", "serviceAccountName", to="swe-argo-runner"), "and nothing else"),
    "a status": ("round", edit("status", "storedWorkflowTemplateSpec", to=OWN_SPEC), "without a status"),
    "finalizers": ("round", edit("metadata", "finalizers", to=["example.org/stay"]), "neither finalizers nor"),
    "an annotation": (
        "round",
        edit("metadata", "annotations", to={"workflows.argoproj.io/pod-name-format": "v1"}),
        "gives a Workflow no annotations",
    ),
    "another owner": ("evaluate", edit("metadata", "ownerReferences", 0, "name", to="other"), "the one that made them"),
    "an image": (
        "evaluate",
        lambda manifest: manifest["spec"]["arguments"]["parameters"].append(
            {"name": "image", "value": "localhost/evil:1"}
        ),
        "images and settings are the namespace's",
    ),
    "a spec that is looked up": (
        "evaluate",
        edit("spec", "arguments", "parameters", 1, "value", to="{{workflow.parameters.credentials}}"),
        "none that is looked up",
    ),
    "another step": ("round", edit("spec", "arguments", "parameters", 1, "value", to="000002"), "that its labels name"),
}
"""What is wrong with a Workflow of a training, of which kind it is, and what is said against it."""


def parameter(**fields: object) -> Callable[[Manifest], object]:
    """The change that says one more thing of a shard."""
    return lambda manifest: manifest["spec"]["arguments"]["parameters"].append(fields)


NONE_BUT = "its run-id, shard, retries, fail-fast and log-level, and nothing else"
PLAIN = "plain values only"
LIES: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "another template": (edit("spec", "workflowTemplateRef", "name", to="swe-argo-evaluate"), "swe-argo-shard only"),
    "a cluster's template": (edit("spec", "workflowTemplateRef", "clusterScope", to=True), "swe-argo-shard only"),
    "no template": (edit("spec", "workflowTemplateRef", to=None), "swe-argo-shard only"),
    "a kind of its own": (edit("metadata", "labels", "swe-argo/kind", to="evaluate"), "label swe-argo/kind=shard only"),
    "a name of its own": (edit("metadata", "name", to="other-s00001"), "by its run's Workflow and its number"),
    "a name of the server's": (edit("metadata", "generateName", to="parent-s"), "neither finalizers nor a generated"),
    "finalizers": (edit("metadata", "finalizers", to=["example.org/stay"]), "neither finalizers nor a generated"),
    "another controller": (
        edit("metadata", "labels", "workflows.argoproj.io/controller-instanceid", to="other"),
        "swe-argo/kind, swe-argo/run, swe-argo/parent and swe-argo/shard, and no others",
    ),
    "an annotation": (
        edit("metadata", "annotations", to={"workflows.argoproj.io/pod-name-format": "v1"}),
        "gives a shard no annotations",
    ),
    "another owner": (edit("metadata", "ownerReferences", 0, "name", to="other"), "go with their run's Workflow"),
    "an owner of another kind": (
        edit("metadata", "ownerReferences", 0, "kind", to="CronWorkflow"),
        "go with their run's",
    ),
    "a template of its own": (
        lambda manifest: manifest["spec"].update(templates=OWN_SPEC["templates"], entrypoint="own"),
        "and nothing else",
    ),
    "an image": (parameter(name="image", value="localhost/evil:1"), NONE_BUT),
    "files": (edit("spec", "arguments", "artifacts", to=[{"name": "a", "raw": {"data": "a"}}]), NONE_BUT),
    "a value from elsewhere": (
        parameter(name="retries", valueFrom={"configMapKeyRef": {"name": "swe-argo-settings", "key": "image"}}),
        PLAIN,
    ),
    "a name for everybody": (parameter(name="retries", value="1", globalName="image"), PLAIN),
    "a value that is looked up": (parameter(name="retries", value="{{workflow.parameters.credentials}}"), PLAIN),
    "a value that is computed": (parameter(name="log-level", value="{{=sprig.env('HOME')}}"), PLAIN),
    "a value that is a path": (parameter(name="log-level", value="a/../b"), PLAIN),
    "no owner": (edit("metadata", "ownerReferences", to=None), "go with their run's Workflow"),
    "many retries": (parameter(name="retries", value="999999"), "at most 20 retries (chart value limits.retries)"),
    "the highest priority": (edit("spec", "priority", to=2_000_000_000), "no higher priority than a run may have"),
    "the lowest priority": (edit("spec", "priority", to=-2_000_000_000), "no higher priority than a run may have"),
    "another run": (edit("spec", "arguments", "parameters", 0, "value", to="other"), "that its labels name"),
    "another number": (edit("spec", "arguments", "parameters", 1, "value", to="00002"), "that its labels name"),
}
"""What is wrong with a shard, and what is said against it."""

CHANGES = [
    json.dumps({part: change})
    for part, changes in {
        "spec": [
            {"priority": 9},
            {"shutdown": "Stop", "suspend": False},
            {"serviceAccountName": "swe-argo-runner"},
            {"podSpecPatch": "{}"},
            {"templates": OWN_SPEC["templates"]},
            {"workflowTemplateRef": {"name": "swe-argo-evaluate"}},
            {"arguments": {"parameters": [{"name": "image", "value": "localhost/evil:1"}]}},
            {"hooks": {"exit": {"template": "own"}}},
            {"shutdown": "Stop", "onExit": "own"},
        ],
        "metadata": [
            {"labels": {"swe-argo/kind": None}},
            {"labels": {"swe-argo/run": "other"}},
            {"labels": {"workflows.argoproj.io/completed": "true"}},
            {"annotations": {"workflows.argoproj.io/pod-name-format": "v1"}},
            {"finalizers": ["example.org/stay"]},
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]},
        ],
        "status": [
            {"phase": "Succeeded"},
            {"storedWorkflowTemplateSpec": OWN_SPEC},
            {"storedTemplates": {"own": {"name": "own", "suspend": {}}}},
            {"nodes": {"a": {"id": "a", "name": "a", "displayName": "a", "type": "Pod", "phase": "Succeeded"}}},
            {"persistentVolumeClaims": [{"name": "a", "emptyDir": {}}]},
            {"synchronization": {"semaphore": {}}, "phase": "Failed"},
        ],
    }.items()
    for change in changes
]
"""Merge patches that no account of the pipeline may make, of a run or of a shard."""


def workflow_schema(release: Release) -> dict[str, Any]:
    """The schema of Workflows that the API server knows."""
    definition = json.loads(release.kubectl("get", "crd", "workflows.argoproj.io", "-o", "json"))
    (version,) = (entry for entry in definition["spec"]["versions"] if entry["storage"])
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def least(schema: dict[str, Any]) -> object:
    """A value that a schema takes, as small as may be."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    if schema.get("type") == "object":
        return {name: least(schema["properties"][name]) for name in schema.get("required", [])}
    if schema.get("type") == "array":
        return [least(schema["items"])] if schema.get("minItems") else []
    values: dict[str, object] = {"string": "a", "boolean": True, "integer": 1, "number": 1}
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    return values[schema["type"]]
