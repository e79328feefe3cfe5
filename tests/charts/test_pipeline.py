"""What the chart makes of the pipeline: Argo's objects as they were rendered, and all that they refer to by name."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import CASES, CHART, FILES, NAMESPACE, Rendered, helm, render, try_render
from tests.charts.server import api_server

PIPELINE = ("aws.s3.bucket=runs", "image.repository=localhost/steps")
OFF = ("default", "without-argo", "quota", "namespace-only")


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render(*PIPELINE, "nightly.enabled=true")


def data(rendered: Rendered, name: str) -> dict[str, str]:
    found: dict[str, str] = rendered.one("ConfigMap", name)["data"]
    return found


def parts(node: object, key: str) -> Iterator[Any]:
    """What stands under this key, anywhere."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name == key:
            yield value
        yield from parts(value, key)


def bare(found: dict[str, Any]) -> dict[str, Any]:
    """An object without the labels that say which release it is of."""
    meta = found["metadata"]
    labels = {key: value for key, value in meta["labels"].items() if key in FILES[meta["name"]]["metadata"]["labels"]}
    return {**found, "metadata": {**meta, "labels": labels}}


@pytest.mark.parametrize("name", OFF)
def test_without_a_bucket_or_where_it_is_refused_nothing_is_made_of_argo(name: str) -> None:
    rendered = render(case=CHART / "ci" / f"{name}-values.yaml")
    assert not [each for each in rendered.objects if each["apiVersion"].startswith("argoproj.io/")]
    assert rendered.names("ServiceAccount") == {"swe-argo-runner", "swe-argo-sandbox"}
    assert rendered.names("ConfigMap") == {"swe-argo-sandbox"}
    assert not rendered.all("Secret")
    assert "argoproj.io" not in json.dumps(rendered.objects)


def test_the_templates_are_the_rendered_files_with_the_releases_labels(chart: Rendered) -> None:
    assert chart.names("WorkflowTemplate") == {f"swe-argo-{name}" for name in ("evaluate", "shard", "train", "round")}
    for found in chart.all("WorkflowTemplate"):
        assert bare(found) == with_settings(FILES[found["metadata"]["name"]], data(chart, "swe-argo-settings"))
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "mine"
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "swe-argo"


def test_every_setting_that_workflows_take_is_there_and_no_other_is(chart: Rendered) -> None:
    wanted: dict[str, set[str]] = {}
    for reference in parts(FILES, "configMapKeyRef"):
        # What an expression may come to stands in it as text.
        wanted.setdefault(reference["name"], set()).update(
            re.findall(r"[?:] '(\w+)'", reference["key"]) or [reference["key"]]
        )
    assert wanted.keys() == {"swe-argo-limits"}
    assert set(data(chart, "swe-argo-limits")) == wanted["swe-argo-limits"]
    placeholders = set(re.findall(r"@([a-z0-9-]+)@", json.dumps(FILES)))
    assert set(data(chart, "swe-argo-settings")) == placeholders


def test_settings_are_no_arguments_of_workflows(chart: Rendered) -> None:
    settings = set(data(chart, "swe-argo-settings")) - {"retries", "resource-factor"}
    for made in (chart.all("WorkflowTemplate"), FILES.values()):
        assert not re.search(rf"workflow[.]parameters\W+({'|'.join(settings)})\b", json.dumps(list(made)))


def with_settings(made: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(made)
    for name, value in settings.items():
        text = text.replace(f"@{name}@", json.dumps(value)[1:-1])
    filled: dict[str, Any] = json.loads(text)
    return filled


def test_every_account_and_token_that_workflows_name_is_there(chart: Rendered) -> None:
    assert set(parts(FILES, "serviceAccountName")) <= chart.names("ServiceAccount")
    executors = {each["serviceAccountName"] for each in parts(FILES, "executor")}
    tokens = {each["metadata"]["name"]: each for each in chart.all("Secret")}
    for name in executors:
        secret = tokens[f"{name}.service-account-token"]
        assert secret["type"] == "kubernetes.io/service-account-token"
        assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
    (repository,) = {json.dumps(each) for each in parts(FILES, "artifactRepositoryRef")}
    assert json.loads(repository) == {"configMap": "swe-argo-artifacts", "key": "default"}
    assert "default" in data(chart, "swe-argo-artifacts")


def test_only_accounts_that_ask_the_api_server_get_a_token(chart: Rendered) -> None:
    without = {
        each["metadata"]["name"] for each in chart.all("ServiceAccount") if "automountServiceAccountToken" in each
    }
    names = ("sandbox", "steps", "children", "trainer", "executor")
    assert without == {f"swe-argo-{name}" for name in names}


def rights(rendered: Rendered, name: str, account: str = "") -> set[tuple[str, str]]:
    (binding,) = (each for each in rendered.all("RoleBinding") if each["metadata"]["name"] == name)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account or name, "namespace": NAMESPACE}]
    rules = rendered.one("Role", binding["roleRef"]["name"])["rules"]
    return {(what, verb) for rule in rules for what in rule["resources"] for verb in rule["verbs"]}


def test_roles_have_nothing_spare(chart: Rendered) -> None:
    report = {("workflowtaskresults", "create"), ("workflowtaskresults", "patch")}
    assert rights(chart, "swe-argo-executor") == report
    for name in ("swe-argo-children", "swe-argo-trainer"):
        assert rights(chart, name) == report | {("workflows", verb) for verb in ("get", "create", "patch")}
    finalizer = {("workflows", "get"), ("workflows", "list"), ("workflows", "patch")}
    assert rights(chart, "swe-argo-finalizer") == finalizer | {("pods", "list"), ("pods", "delete")}
    planner = rights(chart, "swe-argo-planner", "swe-argo-runner")
    assert planner == {("workflows", "list"), ("workflows", "delete")}
    assert chart.names("Role") == {
        f"swe-argo-{name}" for name in ("runner", "executor", "children", "trainer", "finalizer", "planner")
    }


def test_the_roles_of_the_cloud_reach_those_that_use_the_bucket_and_nobody_else() -> None:
    rendered = render(case=CHART / "ci" / "eks-values.yaml")
    annotated = {
        each["metadata"]["name"] for each in rendered.all("ServiceAccount") if "annotations" in each["metadata"]
    }
    assert annotated == {"swe-argo-runner", "swe-argo-steps", "swe-argo-finalizer"}
    repository = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])
    assert repository == {
        "s3": {
            "endpoint": "s3.amazonaws.com",
            "insecure": False,
            "region": "eu-central-1",
            "bucket": "swe-argo-runs-111122223333",
            "keyFormat": "nightly/logs/{{pod.name}}",
        }
    }


def test_accounts_from_elsewhere_are_left_to_them() -> None:
    rendered = render(case=CHART / "ci" / "pipeline-namespace-only-values.yaml")
    assert rendered.names("ServiceAccount") == {"swe-argo-sandbox", "swe-argo-executor"}
    assert {each["metadata"]["name"] for each in rendered.all("RoleBinding")} == rendered.names("Role")
    assert rendered.names("WorkflowTemplate")
    assert not {"PriorityClass", "ValidatingAdmissionPolicy"} & {each["kind"] for each in rendered.objects}


def test_the_nightly_is_the_rendered_file_at_the_values_times(chart: Rendered) -> None:
    assert not render(*PIPELINE).all("CronWorkflow")
    found, file = bare(chart.one("CronWorkflow", "swe-argo-nightly")), FILES["swe-argo-nightly"]
    times = {"schedules": ["0 2 * * *"], "timezone": "Etc/UTC", "suspend": False}
    assert found == {**file, "spec": {**file["spec"], **times}}


def test_the_nightly_asks_for_what_the_values_say() -> None:
    spec = render(case=CHART / "ci" / "nightly-values.yaml").one("CronWorkflow", "swe-argo-nightly")["spec"]
    assert (spec["schedules"], spec["timezone"]) == (["30 1 * * *", "0 12 * * SUN"], "Europe/Berlin")
    asked = {each["name"]: each["value"] for each in spec["workflowSpec"]["arguments"]["parameters"]}
    assert asked == {
        "dataset": "verified",
        "k": "50",
        "agent": "gold",
        "model": "some model",
        "attempts": "2",
        "spec": '[select]\nrepos = ["django/django"]\n',
        "compare-with": "",
        "stop-on-canary": "true",
    }
    known = {each["name"] for each in FILES["swe-argo-evaluate"]["spec"]["arguments"]["parameters"]}
    assert set(asked) <= known
    everything = ("split=dev", "backend=kubernetes", "suspend=true")
    spec = render(*PIPELINE, "nightly.enabled=true", *(f"nightly.{each}" for each in everything)).one(
        "CronWorkflow", "swe-argo-nightly"
    )["spec"]
    assert spec["suspend"] is True
    assert {each["name"] for each in spec["workflowSpec"]["arguments"]["parameters"]} <= known


def test_those_who_submit_are_bound_as_what_they_are() -> None:
    rendered = render(case=CHART / "ci" / "eks-values.yaml")
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    assert rendered.one("RoleBinding", "swe-argo-submitter")["subjects"] == [
        {"kind": "Group", "name": "evaluators", **group},
        {"kind": "User", "name": "jane@example.org", **group},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"},
    ]
    assert "swe-argo-submitter" not in render(*PIPELINE).names("Role")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["argo.create=true", "image.repository=a"], "aws.s3.bucket is empty"),
        (["aws.s3.bucket=runs"], "image.repository is empty"),
        ([*PIPELINE, "serviceAccount.name=mine"], "serviceAccount.name is mine, but the pipeline knows"),
        ([*PIPELINE, "aws.s3.insecure=true"], "Amazon's S3 speaks HTTPS"),
        ([*PIPELINE, "aws.s3.insecure=true", "aws.s3.endpoint=https://s3.example.org"], "change one of them"),
    ],
)
def test_a_pipeline_that_could_not_run_is_refused_in_one_line(sets: list[str], said: str) -> None:
    done = try_render(*(f"--set={each}" for each in sets))
    assert done.returncode != 0
    assert len([line for line in done.stderr.splitlines() if line and "--debug" not in line]) == 1
    assert said in done.stderr


def asked(kubeconfig: Path, *flags: str) -> str:
    """What a cluster without any object hears of an installation that it cannot take in the end."""
    sets = [f"--set={each}" for each in (*PIPELINE, *flags)]
    command = [helm(), "install", "mine", str(CHART), "--dry-run=server", "--kubeconfig", str(kubeconfig), *sets]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_cluster_without_argo_is_told_so_and_how_to_go_on(tmp_path: Path) -> None:
    groups = ("apps/v1", "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1")
    with api_server(tmp_path, *groups) as without:
        said = asked(without)
        assert "this cluster has no Argo Workflows" in said
        assert "argo.create=false" in said
        assert "execution error" in said
        assert "execution error" not in asked(without, "argo.create=false")
        assert "execution error" not in asked(without, "argo.create=null", "aws.s3.bucket=")
    with api_server(tmp_path, *groups, "argoproj.io/v1alpha1") as with_argo:
        assert "execution error" not in asked(with_argo)


def test_every_case_of_the_pipeline_is_tried() -> None:
    on = {case.stem.removesuffix("-values") for case in CASES if render(case=case).all("WorkflowTemplate")}
    assert on == {"s3-server", "eks", "nightly", "pipeline-namespace-only", "provider", "training"}
