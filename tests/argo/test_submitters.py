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
from tests.cluster.refused_pods import put
from tests.cluster.release import Account, Manifest, Release

__all__ = ["person", "release"]

ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load((CHART / "arguments.yaml").read_text("utf-8"))
SAMPLES = {"run-id": "mine-1", "training": "mine", "priority": "-7", "retries": "5", "resource-factor": "1.5"}
"""Argument -> an allowed value, where neither its choices nor free text say one."""
SETTINGS = {
    "image": "localhost/evil:1",
    "control-pod": json.dumps({"hostPID": True, "containers": [{"name": "main", "command": ["sh"]}]}),
    "step-pod": "{}",
    "waiter-pod": "{}",
    "bucket": "other",
    "s3-secret": "keys",
    "credentials": "keys",
    "training-image": "localhost/evil:1",
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


@pytest.mark.parametrize(
    ("template", "name"), [(template, name) for template, each in ARGUMENTS.items() for name in each]
)
def test_submitter_may_set_each_listed_argument(person: Account, template: str, name: str) -> None:
    person.may(*DRY, input=submitted(template, **{name: sample(template, name)}))


@pytest.mark.parametrize("template", ARGUMENTS)
def test_submitter_may_set_all_listed_arguments_at_once(person: Account, template: str) -> None:
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
def test_submitter_may_not_set_a_harmful_value(person: Account, case: str) -> None:
    name, value, reason = VALUES[case]
    assert reason in person.refused(*DRY, input=submitted("swe-argo-evaluate", **{name: value}))


def argument(**given: object) -> Callable[[Manifest], object]:
    return lambda made: made["spec"]["arguments"]["parameters"].append(given)


OTHER_FIELDS: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "looked-up argument": (
        argument(name="model", valueFrom={"configMapKeyRef": {"name": "swe-argo-limits", "key": "units"}}),
        "a name and a value",
    ),
    "global argument": (argument(name="model", value="a", globalName="image"), "a name and a value"),
    "artifact": (put("spec", "arguments", "artifacts", to=[{"name": "a", "raw": {"data": "a"}}]), "no artifacts"),
    "shard template": (put("spec", "workflowTemplateRef", "name", to="swe-argo-shard"), "swe-argo-evaluate and"),
    "cluster template": (put("spec", "workflowTemplateRef", "clusterScope", to=True), "swe-argo-evaluate and"),
    "no template": (put("spec", to=OWN_SPEC), "swe-argo-evaluate and swe-argo-train only"),
    "metadata of the workflow": (
        put("spec", "workflowMetadata", to={"labels": {"swe-argo/kind": "shard"}}),
        "and nothing else",
    ),
    "artifact garbage collection": (put("spec", "artifactGC", to={"podSpecPatch": "{}"}), "and nothing else"),
    "stored template": (put("status", "storedWorkflowTemplateSpec", to=OWN_SPEC), "without a status"),
    "begin": (put("status", "startedAt", to="2099-01-01T00:00:00Z"), "without a status"),
    "unknown shutdown": (put("spec", "shutdown", to="Other"), "by Stop or Terminate"),
    "many arguments": (
        put("spec", "arguments", "parameters", to=[{"name": "k", "value": str(each)} for each in range(65)]),
        "at most 64 arguments",
    ),
    "stored templates": (put("status", "storedTemplates", to={"own": {"name": "own"}}), "without a status"),
    "label of a shard": (put("metadata", "labels", "swe-argo/parent", to="parent"), "no labels of swe-argo and Argo"),
    "other controller": (
        put("metadata", "labels", "workflows.argoproj.io/controller-instanceid", to="other"),
        "no labels of swe-argo and Argo",
    ),
    "annotation of Argo": (
        put("metadata", "annotations", to={"workflows.argoproj.io/pod-name-format": "v1"}),
        "no annotations of Argo",
    ),
    "finalizer": (put("metadata", "finalizers", to=["example.org/stay"]), "without finalizers"),
    "owner": (
        put("metadata", "ownerReferences", to=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]),
        "nothing but a CronWorkflow",
    ),
    "high priority": (put("spec", "priority", to=100_000), "at most 1000"),
}


@pytest.mark.parametrize("case", OTHER_FIELDS)
def test_submitter_may_not_set_other_fields(person: Account, case: str) -> None:
    change, reason = OTHER_FIELDS[case]
    made = submitted("swe-argo-evaluate")
    change(made)
    assert reason in person.refused(*DRY, input=made)


@pytest.mark.parametrize("part", ["spec", "status"])
def test_submitter_may_set_no_field_that_is_not_listed(release: Release, person: Account, part: str) -> None:
    fields = workflow_schema(release)["properties"][part]["properties"]
    assert len(fields) > 15  # those of Argo's full definitions
    known = {"workflowTemplateRef", "arguments", "priority", "suspend", "shutdown", "storedTemplates"}
    for name in set(fields) - known:
        made = submitted("swe-argo-evaluate")
        made.setdefault(part, {})[name] = least(fields[name])
        person.refused(*DRY, input=made)


def test_submitter_stops_a_run_and_changes_nothing_else(release: Release, person: Account) -> None:
    made = submitted("swe-argo-evaluate")
    made["metadata"] = {"name": "changed", "labels": {"swe-argo/kind": "evaluate"}}
    made["spec"]["suspend"] = True
    person.may("create", "-f", "-", input=made)
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
def test_submitter_may_not_change_what_cron_runs(release: Release, person: Account, case: str) -> None:
    release.kubectl("apply", "-f", "-", input=nightly())
    change, reason = CRON_CHANGES[case]
    refusal = person.refused("patch", "cronworkflow", "mine", "--type=merge", "-p", json.dumps({"spec": change}))
    assert reason in refusal


def test_submitter_submits_with_the_argo_cli(release: Release, person: Account) -> None:
    def argo(*words: str) -> str:
        command = ["argo", *words, "--namespace", release.namespace, "--kubeconfig", str(person.kubeconfig)]
        done = subprocess.run(command, env=release.cluster.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    if shutil.which("argo", path=release.cluster.environment["PATH"]) is None:
        pytest.skip("needs the command line of Argo Workflows")
    made = argo("submit", "--from", "workflowtemplate/swe-argo-evaluate", "-p", "k=1", "-o", "name").strip()
    argo("stop", made)
    argo("resubmit", made)
    argo("delete", "--all")


def test_submitter_switches_cron_on_and_off(release: Release, person: Account) -> None:
    release.kubectl("apply", "-f", "-", input=nightly())
    for change in ({"suspend": True, "schedules": ["1 1 * * *"]}, {"timezone": "Europe/Berlin"}):
        person.may("patch", "cronworkflow", "mine", "--type=merge", "-p", json.dumps({"spec": change}))
    status = person.refused("patch", "cronworkflow", "mine", "--type=merge", "-p", '{"status": {"phase": "Stopped"}}')
    assert "the status of a CronWorkflow is Argo's" in status
    whole = copy.deepcopy(json.loads(person.may("get", "cronworkflow", "mine", "-o", "json")))
    whole["spec"]["suspend"] = False
    person.may("replace", "-f", "-", input=whole)  # as argo-server does
