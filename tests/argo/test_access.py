"""What the accounts of the pipeline may do and, tried with their real tokens, what they may not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.argo.forged_workflows import (
    CHANGES,
    LIES,
    OF_TRAINING_LIES,
    least,
    of_training,
    shard,
    workflow,
    workflow_schema,
)
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import Account, Manifest, Release, installed, plain_pod

PIPELINE = [
    *("--set", "aws.s3.bucket=runs"),
    *("--set", "aws.s3.endpoint=http://10.0.0.1:9000"),
    *("--set", "image.repository=localhost/steps"),
    *("--set", "submitters[0].kind=ServiceAccount"),
    *("--set", "submitters[0].name=person"),
]


@pytest.fixture(scope="module")
def release(argo_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(argo_cluster, tmp_path_factory.mktemp("access"), *PIPELINE) as chart_release:
        chart_release.kubectl("create", "serviceaccount", "person")
        chart_release.kubectl("create", "secret", "generic", "keys", "--from-literal=API_KEY=secret")
        chart_release.kubectl("create", "-f", "-", input=workflow("parent", "evaluate", {"suspend": True}))
        chart_release.kubectl("create", "-f", "-", input=workflow("parent-s00000", "shard", {"suspend": True}))
        chart_release.kubectl("create", "-f", "-", input=workflow("neither", "other", {"suspend": True}))
        yield chart_release


@pytest.fixture(scope="module")
def children(release: Release) -> Account:
    return release.account("swe-argo-children")


@pytest.fixture(scope="module")
def finalizer(release: Release) -> Account:
    return release.account("swe-argo-finalizer")


@pytest.fixture(scope="module")
def person(release: Release) -> Account:
    return release.account("person")


def result(name: str = "one") -> Manifest:
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult", "metadata": {"name": name}}
    return {**head, "phase": "Succeeded"}


@pytest.mark.parametrize("name", ["swe-argo-executor", "swe-argo-children", "swe-argo-trainer"])
def test_argo_secret_has_account_token(release: Release, name: str) -> None:
    secret = json.loads(release.kubectl("get", "secret", f"{name}.service-account-token", "-o", "json"))
    assert secret["type"] == "kubernetes.io/service-account-token"
    claims = base64.b64decode(secret["data"]["token"]).decode().split(".")[1]
    claim = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert claim["sub"] == f"system:serviceaccount:{release.namespace}:{name}"


def test_executor_only_reports_results(release: Release) -> None:
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
def test_steps_account_is_denied(release: Release, command: str) -> None:
    assert "cannot" in release.account("swe-argo-steps").refused(*command.split())


def test_shard_is_created_once(release: Release, children: Account) -> None:
    manifest = shard(release)
    children.may("apply", "-f", "-", input=manifest)
    children.may("apply", "-f", "-", input=manifest)
    assert "parent-s00001" in children.may("get", "workflow", "parent-s00001", "-o", "name")
    release.kubectl("delete", "workflow", "parent-s00001")


@pytest.mark.parametrize("lie", LIES)
def test_children_create_only_shards(release: Release, children: Account, lie: str) -> None:
    change, reason = LIES[lie]
    manifest = shard(release)
    change(manifest)
    assert reason in children.refused("create", "--dry-run=server", "-f", "-", input=manifest)


@pytest.mark.parametrize(("part", "reason"), [("spec", "and nothing else"), ("status", "without a status")])
def test_admission_limits_shard_fields(release: Release, children: Account, part: str, reason: str) -> None:
    fields = workflow_schema(release)["properties"][part]["properties"]
    assert len(fields) > 15  # those of Argo's full definitions
    for name in set(fields) - {"workflowTemplateRef", "arguments", "priority"}:
        manifest = shard(release)
        manifest.setdefault(part, {})[name] = least(fields[name])
        refusal = children.refused("create", "--dry-run=server", "-f", "-", input=manifest)
        assert reason in refusal, f"{part}.{name}"


def test_children_account_is_denied(children: Account) -> None:
    for command in ("get workflows", "delete workflow parent", "get pods", "get secret keys"):
        assert "cannot" in children.refused(*command.split())


@pytest.mark.parametrize("kind", ["round", "evaluate"])
def test_training_workflows_are_immutable(release: Release, kind: str) -> None:
    trainer, manifest = release.account("swe-argo-trainer"), of_training(release, kind)
    name = manifest["metadata"]["name"]
    trainer.may("apply", "-f", "-", input=manifest)
    trainer.may("apply", "-f", "-", input=manifest)
    for change in (
        *(candidate for candidate in CHANGES if kind == "round" or "swe-argo-evaluate" not in candidate),
        STOP,
    ):
        assert "the trainer's account changes no" in trainer.refused(*patched(name, change)), change
    release.account("swe-argo-finalizer").may(*patched(name, STOP))
    release.kubectl("delete", "workflow", name)


@pytest.mark.parametrize("lie", OF_TRAINING_LIES)
def test_trainer_creates_only_its_kinds(release: Release, lie: str) -> None:
    kind, change, reason = OF_TRAINING_LIES[lie]
    manifest = of_training(release, kind)
    change(manifest)
    refusal = release.account("swe-argo-trainer").refused("create", "--dry-run=server", "-f", "-", input=manifest)
    assert reason in refusal


def patched(name: str, change: str) -> list[str]:
    return ["patch", "workflow", name, "--type=merge", "-p", change]


STOP = '{"spec": {"shutdown": "Stop"}}'


def test_children_may_only_stop_a_run(release: Release, children: Account) -> None:
    release.kubectl("create", "-f", "-", input=workflow("run", "evaluate", {"suspend": True}))
    for change in (*CHANGES, '{"spec": {"shutdown": "Terminate"}}', '{"status": {"synchronization": {}}}'):
        assert "the account of children changes n" in children.refused(*patched("run", change)), change
    children.may(*patched("run", STOP))
    assert "but shutdown, to Stop" in children.refused(*patched("run", '{"spec": {"shutdown": null}}'))


@pytest.mark.parametrize("name", ["parent-s00000", "neither"])
def test_children_change_only_runs(children: Account, name: str) -> None:
    for change in (*CHANGES, STOP, '{"status": {"synchronization": {}}}'):
        assert "the account of children" in children.refused(*patched(name, change)), change
    assert "changes nothing of a shard" in children.refused(*patched(name, STOP))


def test_finalizer_may_only_stop_shards(finalizer: Account) -> None:
    assert "parent-s00000" in finalizer.may("get", "workflows", "-l", "swe-argo/parent=parent", "-o", "name")
    for change in (*CHANGES, '{"status": {"synchronization": {"semaphore": {}}}}'):
        assert "the finalizer's account" in finalizer.refused(*patched("parent-s00000", change)), change
    for how in ("Stop", "Terminate"):
        finalizer.may(*patched("parent-s00000", json.dumps({"spec": {"shutdown": how}})))


def test_finalizer_may_release_locks(release: Release, finalizer: Account) -> None:
    status = {"phase": "Running", "synchronization": {"semaphore": {"holding": []}}}
    release.kubectl(*patched("parent", json.dumps({"status": status})))
    for change in (*CHANGES, STOP, '{"status": {"phase": null}}'):
        assert "the finalizer's account" in finalizer.refused(*patched("parent", change)), change
    holding = {"semaphore": {"holding": [{"semaphore": "a", "holders": ["b"]}]}}
    finalizer.may(*patched("parent", json.dumps({"status": {"synchronization": holding}})))
    for name in ("parent", "neither"):
        assert "stops shards only" in finalizer.refused(*patched(name, STOP))
    for command in ("delete workflow parent", "get secret keys", "get configmap swe-argo-settings"):
        assert "cannot" in finalizer.refused(*command.split())
    assert "cannot" in finalizer.refused("create", "-f", "-", input=shard(release))


def test_runner_may_only_delete_shards(release: Release) -> None:
    runner = release.account("swe-argo-runner")
    release.kubectl("create", "-f", "-", input=workflow("left-s00000", "shard", {"suspend": True}))
    where = f"/apis/argoproj.io/v1alpha1/namespaces/{release.namespace}/workflows"
    runner.may("delete", "--raw", f"{where}/left-s00000")
    for name in ("parent", "neither"):
        assert "deletes shards only" in runner.refused("delete", "--raw", f"{where}/{name}")
    assert "cannot" in runner.refused("create", "-f", "-", input=shard(release))
    assert "cannot" in runner.refused("replace", "--raw", f"{where}/parent", "-f", "-", input=shard(release))


@pytest.mark.parametrize("name", ["swe-argo-steps", "swe-argo-executor", "swe-argo-sandbox"])
def test_other_accounts_are_denied(release: Release, name: str) -> None:
    account = release.account(name)
    assert "cannot" in account.refused("create", "-f", "-", input=shard(release))
    for command in ("get workflow parent", "delete workflow parent"):
        assert "cannot" in account.refused(*command.split())
    where = f"/apis/argoproj.io/v1alpha1/namespaces/{release.namespace}/workflows/parent"
    assert "cannot" in account.refused("replace", "--raw", where, "-f", "-", input=shard(release))


@pytest.mark.parametrize("name", ["swe-argo-children", "swe-argo-finalizer"])
@pytest.mark.parametrize("part", ["status", "finalizers"])
def test_subresources_are_denied(release: Release, name: str, part: str) -> None:
    where = f"/apis/argoproj.io/v1alpha1/namespaces/{release.namespace}/workflows/parent/{part}"
    result = release.account(name).tries("replace", "--raw", where, "-f", "-", input=shard(release))
    assert result.returncode != 0
    assert "cannot" in result.stderr or "could not find the requested resource" in result.stderr


ACCOUNTS = [f"swe-argo-{name}" for name in ("runner", "steps", "executor", "children", "trainer", "finalizer")]
MORE = ("WorkflowTemplate", "CronWorkflow", "WorkflowTaskSet", "WorkflowArtifactGCTask", "WorkflowEventBinding")


@pytest.mark.parametrize("name", ACCOUNTS)
def test_other_argo_kinds_are_denied(release: Release, name: str) -> None:
    for kind in MORE:
        head = {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": "mine"}, "spec": {}}
        assert "cannot" in release.account(name).refused("create", "--validate=false", "-f", "-", input=head), kind


def test_finalizer_deletes_only_run_pods(release: Release, finalizer: Account) -> None:
    box = release.sandbox("localhost/one:1")
    steps = [plain_pod(f"step-{step}", "localhost/one:1", **{"swe-argo/step": step}) for step in ("solve", "plan")]
    bystanders = [plain_pod("bystander", "localhost/one:1"), *steps]
    release.kubectl("create", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": [box, *bystanders]})
    pods = f"/api/v1/namespaces/{release.namespace}/pods"
    assert "bystander" in finalizer.may("get", "--raw", pods)
    for name in (box["metadata"]["name"], "step-solve"):
        finalizer.may("delete", "--raw", f"{pods}/{name}")
    for name in ("bystander", "step-plan"):
        assert "sandboxes and the steps that use them only" in finalizer.refused("delete", "--raw", f"{pods}/{name}")
    assert "cannot" in finalizer.refused("exec", "bystander", "--", "true")
    assert "cannot" in finalizer.refused("create", "-f", "-", input=plain_pod("mine", "localhost/a:1"))


def test_person_submits_and_stops(person: Account) -> None:
    run = workflow("asked", "evaluate", {"workflowTemplateRef": {"name": "swe-argo-evaluate"}, "suspend": True})
    del run["spec"]["arguments"], run["metadata"]["labels"]["workflows.argoproj.io/controller-instanceid"]
    person.may("create", "-f", "-", input=run)
    person.may("patch", "workflow", "asked", "--type=merge", "-p", '{"spec": {"shutdown": "Stop"}}')
    person.may("get", "workflowtemplate", "swe-argo-evaluate")
    person.may("get", "configmap", "swe-argo-limits")
    person.may("delete", "workflow", "asked")
    for command in ("get secrets", "delete configmap swe-argo-limits", "delete workflowtemplate swe-argo-shard"):
        assert "cannot" in person.refused(*command.split())
    assert "cannot" in person.refused("create", "-f", "-", input=plain_pod("mine", "localhost/a:1"))
