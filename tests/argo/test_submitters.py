"""Everything that a submitter could set of a Workflow or CronWorkflow, tried with a real token."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.argo.forged_workflows import CHANGES, OWN_SPEC, least, workflow_schema
from tests.argo.test_access import patched, person, release
from tests.charts.chart import CHART
from tests.cluster.refused_pods import edit
from tests.cluster.release import Account, Manifest, Release

__all__ = ["person", "release"]

ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load((CHART / "arguments.yaml").read_text("utf-8"))
SAMPLES = {"run-id": "mine-1", "training": "mine", "priority": "-7", "retries": "5", "resource-factor": "1.5"}
"""Argument -> an allowed value, where neither its choices nor free text say one."""
SETTINGS = {
    "image": "localhost/evil:1",
    "control-pod": json.dumps({"hostPID": True, "containers": [{"name": "main", "command": ["sh"]}]}),
    "credentials": "keys",
}
"""Arguments of earlier releases that are settings of the namespace."""


def sample(template: str, name: str) -> str:
    argument = ARGUMENTS[template][name]
    return SAMPLES.get(name) or str(argument.get("choices", ['it\'s "one" text'])[-1])


def submitted(template: str, **arguments: str) -> Manifest:
    """A Workflow as `swe-argo submit` or the UI makes it."""
    parameters = [{"name": name.replace("_", "-"), "value": value} for name, value in arguments.items()]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "mine-", "labels": {"swe-argo/kind": template.removeprefix("swe-argo-")}},
        "spec": {"workflowTemplateRef": {"name": template}, "arguments": {"parameters": parameters}},
    }


def nightly() -> Manifest:
    """The chart's CronWorkflow under another name."""
    cron: Manifest = yaml.safe_load((CHART / "argo" / "swe-argo-nightly.yaml").read_text("utf-8"))
    cron["metadata"] = {"name": "mine"}
    return cron


DRY = ("create", "--dry-run=server", "-f", "-")


@pytest.mark.parametrize("template", ARGUMENTS)
def test_submitter_sets_all_arguments(person: Account, template: str) -> None:
    person.may(*DRY, input=submitted(template, **{name: sample(template, name) for name in ARGUMENTS[template]}))


@pytest.mark.parametrize("template", ARGUMENTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_submitter_may_not_set_a_setting(person: Account, template: str, name: str) -> None:
    refusal = person.refused(*DRY, input=submitted(template, **{name: SETTINGS[name]}))
    assert f"a Workflow of {template} has no argument {name}: remove it" in refusal


VALUES = {
    "expression": ("dataset", "{{=sprig.env('HOME')}}", "no argument of a Workflow holds {{"),
    "reference": ("spec", "run_id = '{{workflow.name}}'", "no argument of a Workflow holds {{"),
    "newline": ("model", "openai/m\n--store=s3://other", "argument model is not allowed"),
    "quote in a name": ("run-id", 'a"\n  evil: "b', "argument run-id is not allowed"),
    "null byte": ("spec", "a\x00b", "argument spec is not allowed"),
    "expression as retries": ("retries", "1) || (true", "argument retries is not allowed"),
    "many retries": ("retries", "999999", "argument retries is out of bounds: the most is 20"),
    "no factor": ("resource-factor", "0", "argument resource-factor is not allowed"),
    "large factor": ("resource-factor", "1000", "argument resource-factor is out of bounds: the most is 8"),
    "high priority": ("priority", "100000", "argument priority is out of bounds: the most is 1000"),
    "low priority": ("priority", "-100000", "argument priority is out of bounds"),
    "unknown choice": ("log-level", "INFO\nx: y", "argument log-level is not allowed"),
}


@pytest.mark.parametrize("case", VALUES)
def test_harmful_value_is_refused(person: Account, case: str) -> None:
    name, value, reason = VALUES[case]
    assert reason in person.refused(*DRY, input=submitted("swe-argo-evaluate", **{name: value}))


def argument(**fields: object) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["spec"]["arguments"]["parameters"].append(fields)


OTHER_FIELDS: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "looked-up argument": (
        argument(name="model", valueFrom={"configMapKeyRef": {"name": "swe-argo-limits", "key": "units"}}),
        "a name and a value",
    ),
    "global argument": (argument(name="model", value="a", globalName="image"), "a name and a value"),
    "artifact": (edit("spec", "arguments", "artifacts", to=[{"name": "a", "raw": {"data": "a"}}]), "no artifacts"),
    "shard template": (edit("spec", "workflowTemplateRef", "name", to="swe-argo-shard"), "swe-argo-evaluate and"),
    "cluster template": (edit("spec", "workflowTemplateRef", "clusterScope", to=True), "swe-argo-evaluate and"),
    "no template": (edit("spec", to=OWN_SPEC), "swe-argo-evaluate and swe-argo-train only"),
    "unknown shutdown": (edit("spec", "shutdown", to="Other"), "by Stop or Terminate"),
    "many arguments": (
        edit("spec", "arguments", "parameters", to=[{"name": "k", "value": str(number)} for number in range(65)]),
        "at most 64 arguments",
    ),
    "stored templates": (edit("status", "storedTemplates", to={"own": {"name": "own"}}), "without a status"),
    "label of a shard": (edit("metadata", "labels", "swe-argo/parent", to="parent"), "no labels of swe-argo and Argo"),
    "other controller": (
        edit("metadata", "labels", "workflows.argoproj.io/controller-instanceid", to="other"),
        "no labels of swe-argo and Argo",
    ),
    "annotation of Argo": (
        edit("metadata", "annotations", to={"workflows.argoproj.io/pod-name-format": "v1"}),
        "no annotations of Argo",
    ),
    "finalizer": (edit("metadata", "finalizers", to=["example.org/stay"]), "without finalizers"),
    "owner": (
        edit("metadata", "ownerReferences", to=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]),
        "nothing but a CronWorkflow",
    ),
    "high priority": (edit("spec", "priority", to=100_000), "at most 1000"),
}


@pytest.mark.parametrize("case", OTHER_FIELDS)
def test_submitter_sets_no_other_field(person: Account, case: str) -> None:
    change, reason = OTHER_FIELDS[case]
    manifest = submitted("swe-argo-evaluate")
    change(manifest)
    assert reason in person.refused(*DRY, input=manifest)


@pytest.mark.parametrize("part", ["spec", "status"])
def test_submitter_sets_listed_fields(release: Release, person: Account, part: str) -> None:
    fields = workflow_schema(release)["properties"][part]["properties"]
    assert len(fields) > 15  # those of Argo's full definitions
    allowed = {"workflowTemplateRef", "arguments", "priority", "suspend", "shutdown", "storedTemplates"}
    for name in set(fields) - allowed:
        manifest = submitted("swe-argo-evaluate")
        manifest.setdefault(part, {})[name] = least(fields[name])
        person.refused(*DRY, input=manifest)


def test_submitter_may_only_stop_a_run(release: Release, person: Account) -> None:
    manifest = submitted("swe-argo-evaluate")
    manifest["metadata"] = {"name": "changed", "labels": {"swe-argo/kind": "evaluate"}}
    manifest["spec"]["suspend"] = True
    person.may("create", "-f", "-", input=manifest)
    for change in (*CHANGES, '{"spec": {"shutdown": "Other"}}'):
        if "swe-argo-evaluate" in change or change == '{"spec": {"shutdown": "Stop", "suspend": false}}':
            continue
        refusal = person.refused(*patched("changed", change))
        assert "Workflow" in refusal, change
    person.may(*patched("changed", '{"spec": {"suspend": null}}'))
    person.may(*patched("changed", '{"spec": {"shutdown": "Terminate"}}'))
    person.may("delete", "workflow", "changed")


CRON_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "image": (
        {"workflowSpec": {"arguments": {"parameters": [{"name": "image", "value": "localhost/evil:1"}]}}},
        "has no argument image: remove it",
    ),
    "expression": (
        {"workflowSpec": {"arguments": {"parameters": [{"name": "model", "value": "{{=1+1}}"}]}}},
        "holds {{",
    ),
    "entry point": (
        {"workflowSpec": {"entrypoint": "plan"}},
        "and nothing else, nor labels by workflowMetadata: not entrypoint",
    ),
    "artifact garbage collection": ({"workflowSpec": {"artifactGC": {"podSpecPatch": "{}"}}}, "and nothing else"),
    "pod patch": ({"workflowSpec": {"podSpecPatch": "{}"}}, "nor labels by workflowMetadata: not podSpecPatch"),
    "template": ({"workflowSpec": {"workflowTemplateRef": {"name": "swe-argo-shard"}}}, "swe-argo-evaluate and"),
    "condition": ({"when": "{{= true }}"}, "no expressions"),
    "stop strategy": ({"stopStrategy": {"expression": "true"}}, "no expressions"),
    "labels": ({"workflowMetadata": {"labels": {"swe-argo/kind": "shard"}}}, "what its Workflows are given are set"),
    "workflow labels": (
        {"workflowSpec": {"workflowMetadata": {"labels": {"swe-argo/kind": "shard"}}}},
        "and nothing else",
    ),
}


@pytest.mark.parametrize("case", CRON_CHANGES)
def test_cron_work_cannot_be_changed(release: Release, person: Account, case: str) -> None:
    release.kubectl("apply", "-f", "-", input=nightly())
    change, reason = CRON_CHANGES[case]
    refusal = person.refused("patch", "cronworkflow", "mine", "--type=merge", "-p", json.dumps({"spec": change}))
    assert reason in refusal


def test_submitter_may_use_the_argo_cli(release: Release, person: Account) -> None:
    def argo(*words: str) -> str:
        command = ["argo", *words, "--namespace", release.namespace, "--kubeconfig", str(person.kubeconfig)]
        result = subprocess.run(command, env=release.cluster.environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    if shutil.which("argo", path=release.cluster.environment["PATH"]) is None:
        pytest.skip("needs the command line of Argo Workflows")
    manifest = argo("submit", "--from", "workflowtemplate/swe-argo-evaluate", "-p", "k=1", "-o", "name").strip()
    argo("stop", manifest)
    argo("resubmit", manifest)
    argo("delete", "--all")


def test_submitter_switches_cron(release: Release, person: Account) -> None:
    release.kubectl("apply", "-f", "-", input=nightly())
    for change in ({"suspend": True, "schedules": ["1 1 * * *"]}, {"timezone": "Europe/Berlin"}):
        person.may("patch", "cronworkflow", "mine", "--type=merge", "-p", json.dumps({"spec": change}))
    status = person.refused("patch", "cronworkflow", "mine", "--type=merge", "-p", '{"status": {"phase": "Stopped"}}')
    assert "the status of a CronWorkflow is Argo's" in status
    whole = copy.deepcopy(json.loads(person.may("get", "cronworkflow", "mine", "-o", "json")))
    whole["spec"]["suspend"] = False
    person.may("replace", "-f", "-", input=whole)  # as argo-server does
