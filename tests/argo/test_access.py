"""What the accounts of the pipeline may do and, tried with their real tokens, what they may not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.real import Cluster
from tests.cluster.release import Account, Manifest, Release, installed, plain_pod
from tests.cluster.test_access import rules

PIPELINE = [
    *("--set", "aws.s3.bucket=runs"),
    *("--set", "aws.s3.endpoint=http://10.0.0.1:9000"),
    *("--set", "image.repository=localhost/steps"),
    *("--set", "submitters[0].kind=ServiceAccount"),
    *("--set", "submitters[0].name=person"),
]


@pytest.fixture(scope="module")
def release(argo_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(argo_cluster, tmp_path_factory.mktemp("access"), *PIPELINE) as made:
        made.kubectl("create", "serviceaccount", "person")
        made.kubectl("create", "secret", "generic", "keys", "--from-literal=API_KEY=secret")
        made.kubectl("create", "-f", "-", input=workflow("parent", "evaluate", {"suspend": True}))
        made.kubectl("create", "-f", "-", input=workflow("parent-s00000", "shard", {"suspend": True}))
        yield made


@pytest.fixture(scope="module")
def nobody(release: Release) -> set[tuple[str, ...]]:
    """What every account may."""
    return rules(release.account("swe-argo-sandbox"))


@pytest.fixture(scope="module")
def children(release: Release) -> Account:
    return release.account("swe-argo-children")


@pytest.fixture(scope="module")
def finalizer(release: Release) -> Account:
    return release.account("swe-argo-finalizer")


@pytest.fixture(scope="module")
def person(release: Release) -> Account:
    return release.account("person")


def workflow(name: str, kind: str, spec: dict[str, Any]) -> Manifest:
    """A Workflow as the parent makes its shards, but of a controller that is not there: nothing comes of it."""
    labels = {"swe-argo/kind": kind, "swe-argo/parent": "parent", "workflows.argoproj.io/controller-instanceid": "none"}
    made: Manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "workflowTemplateRef": {"name": "swe-argo-shard"},
            "priority": 0,
            "arguments": {"parameters": [{"name": "run-id", "value": "r"}, {"name": "shard", "value": "00001"}]},
        },
    }
    made["spec"] |= spec
    return made


def result(name: str = "one") -> Manifest:
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult", "metadata": {"name": name}}
    return {**head, "phase": "Succeeded"}


EXECUTOR: set[tuple[str, ...]] = {("argoproj.io", "workflowtaskresults", verb) for verb in ("create", "patch")}
RIGHTS: dict[str, set[tuple[str, ...]]] = {
    "swe-argo-steps": set(),
    "swe-argo-executor": EXECUTOR,
    "swe-argo-children": EXECUTOR | {("argoproj.io", "workflows", verb) for verb in ("get", "create", "patch")},
    "swe-argo-finalizer": {
        *(("argoproj.io", "workflows", verb) for verb in ("get", "list", "patch")),
        *(("", "pods", verb) for verb in ("list", "delete")),
    },
    "person": {
        *(("argoproj.io", "workflows", verb) for verb in ("create", "get", "list", "watch", "patch", "delete")),
        *(("argoproj.io", "workflowtemplates", verb) for verb in ("get", "list")),
        *(("argoproj.io", "cronworkflows", verb) for verb in ("get", "list", "patch", "update")),
        *(("", "pods", verb) for verb in ("get", "list", "watch")),
        ("", "pods/log", "get"),
        *(("", "configmaps", "get", f"swe-argo-{name}") for name in ("settings", "limits", "artifacts", "sandbox")),
        ("", "resourcequotas", "list"),
    },
}


@pytest.mark.parametrize("name", RIGHTS)
def test_an_account_has_its_rights_and_no_others(release: Release, nobody: set[tuple[str, ...]], name: str) -> None:
    extra = rules(release.account(name)) - nobody
    single = {(*right[:3], each) for right in extra for each in right[3:]} | {each for each in extra if len(each) == 3}
    assert single == RIGHTS[name]


@pytest.mark.parametrize("name", ["swe-argo-executor", "swe-argo-children"])
def test_the_secret_that_argo_mounts_has_a_token_of_its_account(release: Release, name: str) -> None:
    secret = json.loads(release.kubectl("get", "secret", f"{name}.service-account-token", "-o", "json"))
    assert secret["type"] == "kubernetes.io/service-account-token"
    claims = base64.b64decode(secret["data"]["token"]).decode().split(".")[1]
    told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert told["sub"] == f"system:serviceaccount:{release.namespace}:{name}"


def test_the_executor_reports_results_and_cannot_read_them(release: Release) -> None:
    executor = release.account("swe-argo-executor")
    executor.may("create", "-f", "-", input=result())
    assert "cannot" in executor.refused("get", "workflowtaskresults")
    assert "cannot" in executor.refused("get", "workflows")
    assert "cannot" in executor.refused("get", "secrets")
    assert "cannot" in executor.refused("create", "-f", "-", input=plain_pod("mine", "localhost/a:1"))


@pytest.mark.parametrize(
    "command",
    ["get workflows", "get pods", "get secret keys", "get configmap swe-argo-settings", "delete workflow parent"],
)
def test_steps_may_not(release: Release, command: str) -> None:
    assert "cannot" in release.account("swe-argo-steps").refused(*command.split())


def test_a_shard_is_made_once_and_taken_up_again(release: Release, children: Account) -> None:
    shard = workflow("made-s00001", "shard", {})
    children.may("apply", "-f", "-", input=shard)
    children.may("apply", "-f", "-", input=shard)
    assert "made-s00001" in children.may("get", "workflow", "made-s00001", "-o", "name")


OTHER = {"name": "image", "value": "localhost/evil:1"}
LIES: dict[str, tuple[dict[str, Any], str]] = {
    "another template": (
        {"workflowTemplateRef": {"name": "swe-argo-evaluate"}},
        "WorkflowTemplate swe-argo-shard only",
    ),
    "a cluster's template": (
        {"workflowTemplateRef": {"name": "swe-argo-shard", "clusterScope": True}},
        "WorkflowTemplate swe-argo-shard only",
    ),
    "an account": ({"serviceAccountName": "swe-argo-runner"}, "and nothing else"),
    "a patch of pods": ({"podSpecPatch": "{}"}, "and nothing else"),
    "a template of its own": ({"templates": [{"name": "a", "suspend": {}}], "entrypoint": "a"}, "and nothing else"),
    "an image": ({"arguments": {"parameters": [OTHER]}}, "its run-id, shard, retries, fail-fast and log-level, and"),
    "files": (
        {"arguments": {"artifacts": [{"name": "a", "raw": {"data": "a"}}]}},
        "its run-id, shard, retries, fail-fast and log-level, and nothing else",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_makes_shards_makes_nothing_else(children: Account, lie: str) -> None:
    spec, reason = LIES[lie]
    assert reason in children.refused("create", "-f", "-", input=workflow("lie", "shard", spec))


def test_who_makes_shards_does_not_touch_other_workflows(children: Account) -> None:
    assert "swe-argo/kind=shard only" in children.refused("create", "-f", "-", input=workflow("lie", "evaluate", {}))
    for command in ("get workflows", "delete workflow parent", "get pods", "get secret keys"):
        assert "cannot" in children.refused(*command.split())


def test_who_makes_shards_ends_a_run_and_changes_nothing_else_of_it(release: Release, children: Account) -> None:
    release.kubectl("create", "-f", "-", input=workflow("run", "evaluate", {"suspend": True}))
    patch = ["patch", "workflow", "run", "--type=merge", "-p"]
    for spec in ({"priority": 9}, {"suspend": None, "shutdown": "Stop"}, {"serviceAccountName": "swe-argo-runner"}):
        assert "nothing of a run's spec but shutdown" in children.refused(*patch, json.dumps({"spec": spec}))
    for change in ({"metadata": {"labels": {"swe-argo/kind": "shard"}}}, {"status": {"phase": "Succeeded"}}):
        assert "neither labels nor status of a run" in children.refused(*patch, json.dumps(change))
    children.may(*patch, '{"spec": {"shutdown": "Stop"}}')
    release.kubectl("create", "-f", "-", input=workflow("neither", "other", {"suspend": True}))
    stop = ["patch", "workflow", "neither", "--type=merge", "-p", '{"spec": {"shutdown": "Stop"}}']
    assert "swe-argo/kind=shard only" in children.refused(*stop)


def test_the_finalizer_stops_shards_and_gives_up_places_and_does_nothing_else_to_a_workflow(
    release: Release, finalizer: Account
) -> None:
    assert "parent-s00000" in finalizer.may("get", "workflows", "-l", "swe-argo/parent=parent", "-o", "name")
    patch = ["patch", "workflow", "parent-s00000", "--type=merge", "-p"]
    assert "but shutdown" in finalizer.refused(*patch, '{"spec": {"priority": 9}}')
    assert "but shutdown" in finalizer.refused(*patch, '{"spec": {"suspend": null, "shutdown": "Stop"}}')
    assert "but shutdown" in finalizer.refused(*patch, '{"spec": {"serviceAccountName": "swe-argo-runner"}}')
    finalizer.may(*patch, '{"spec": {"shutdown": "Stop"}}')
    stop = ["patch", "workflow", "parent", "--type=merge", "-p", '{"spec": {"shutdown": "Stop"}}']
    assert "stops shards only" in finalizer.refused(*stop)
    status = {"phase": "Running", "synchronization": {"semaphore": {"holding": []}}}
    release.kubectl(*stop[:-1], json.dumps({"status": status}))
    for change in (
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": None}},
        {"metadata": {"labels": {"swe-argo/run": "other"}}},
        {"spec": {"priority": 9}},
    ):
        assert "no more than status.synchronization" in finalizer.refused(*stop[:-1], json.dumps(change))
    holding = {"semaphore": {"holding": [{"semaphore": "a", "holders": ["b"]}]}}
    finalizer.may(*stop[:-1], json.dumps({"status": {"synchronization": holding}}))
    for command in ("delete workflow parent", "get secret keys", "get configmap swe-argo-settings"):
        assert "cannot" in finalizer.refused(*command.split())


def test_the_finalizer_removes_sandboxes_and_steps_and_no_other_pod(release: Release, finalizer: Account) -> None:
    box = release.sandbox("localhost/one:1")
    steps = [plain_pod(f"step-{step}", "localhost/one:1", **{"swe-argo/step": step}) for step in ("solve", "plan")]
    others = [plain_pod("bystander", "localhost/one:1"), *steps]
    release.kubectl("create", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": [box, *others]})
    pods = f"/api/v1/namespaces/{release.namespace}/pods"
    assert "bystander" in finalizer.may("get", "--raw", pods)
    for name in (box["metadata"]["name"], "step-solve"):
        finalizer.may("delete", "--raw", f"{pods}/{name}")
    for name in ("bystander", "step-plan"):
        assert "sandboxes and the steps that use them only" in finalizer.refused("delete", "--raw", f"{pods}/{name}")
    assert "cannot" in finalizer.refused("exec", "bystander", "--", "true")
    assert "cannot" in finalizer.refused("create", "-f", "-", input=plain_pod("mine", "localhost/a:1"))


def test_a_person_submits_watches_and_stops(person: Account) -> None:
    run = workflow("asked", "evaluate", {"workflowTemplateRef": {"name": "swe-argo-evaluate"}, "suspend": True})
    del run["spec"]["arguments"]
    person.may("create", "-f", "-", input=run)
    person.may("patch", "workflow", "asked", "--type=merge", "-p", '{"spec": {"shutdown": "Stop"}}')
    person.may("get", "workflowtemplate", "swe-argo-evaluate")
    person.may("get", "configmap", "swe-argo-limits")
    person.may("delete", "workflow", "asked")
    for command in ("get secrets", "delete configmap swe-argo-limits", "delete workflowtemplate swe-argo-shard"):
        assert "cannot" in person.refused(*command.split())
    assert "cannot" in person.refused("create", "-f", "-", input=plain_pod("mine", "localhost/a:1"))
