"""What the chart makes of the pipeline: Argo's objects as they were rendered, and all that they refer to by name."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import CASES, CHART, FILES, NAMESPACE, Rendered, helm, refused, render
from tests.http_server import Handler, serve
from tests.kube_api import write_kubeconfig

PIPELINE = ("aws.s3.bucket=runs", "image.repository=localhost/steps")
OFF = ("default", "without-argo", "quota", "namespace-only")


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render(*PIPELINE, "nightly.enabled=true")


def data(rendered: Rendered, name: str) -> dict[str, str]:
    values: dict[str, str] = rendered.one("ConfigMap", name)["data"]
    return values


def parts(node: object, key: str) -> Iterator[Any]:
    """What stands under this key, anywhere."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name == key:
            yield value
        yield from parts(value, key)


def bare(manifest: dict[str, Any]) -> dict[str, Any]:
    """An object without the labels that say which release it is of."""
    meta = manifest["metadata"]
    labels = {key: value for key, value in meta["labels"].items() if key in FILES[meta["name"]]["metadata"]["labels"]}
    return {**manifest, "metadata": {**meta, "labels": labels}}


@pytest.mark.parametrize("name", OFF)
def test_chart_without_bucket_lacks_argo(name: str) -> None:
    rendered = render(case=CHART / "ci" / f"{name}-values.yaml")
    assert not [manifest for manifest in rendered.objects if manifest["apiVersion"].startswith("argoproj.io/")]
    assert rendered.names("ServiceAccount") == {"swe-argo-runner", "swe-argo-sandbox"}
    assert rendered.names("ConfigMap") == {"swe-argo-sandbox"}
    assert not rendered.all("Secret")
    assert "argoproj.io" not in json.dumps(rendered.objects)


def test_chart_templates_are_current(chart: Rendered) -> None:
    assert chart.names("WorkflowTemplate") == {f"swe-argo-{name}" for name in ("evaluate", "shard", "train", "round")}
    for template in chart.all("WorkflowTemplate"):
        assert bare(template) == with_settings(FILES[template["metadata"]["name"]], data(chart, "swe-argo-settings"))
        assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "mine"
        assert template["metadata"]["labels"]["app.kubernetes.io/part-of"] == "swe-argo"


def test_chart_settings_match_workflows(chart: Rendered) -> None:
    expected: dict[str, set[str]] = {}
    for reference in parts(FILES, "configMapKeyRef"):
        # What an expression may come to stands in it as text.
        expected.setdefault(reference["name"], set()).update(
            re.findall(r"[?:] '(\w+)'", reference["key"]) or [reference["key"]]
        )
    assert expected.keys() == {"swe-argo-limits"}
    assert set(data(chart, "swe-argo-limits")) == expected["swe-argo-limits"]
    placeholders = set(re.findall(r"@([a-z0-9-]+)@", json.dumps(FILES)))
    assert set(data(chart, "swe-argo-settings")) == placeholders


def test_settings_are_no_arguments(chart: Rendered) -> None:
    settings = set(data(chart, "swe-argo-settings")) - {"retries", "resource-factor"}
    for templates in (chart.all("WorkflowTemplate"), FILES.values()):
        assert not re.search(rf"workflow[.]parameters\W+({'|'.join(settings)})\b", json.dumps(list(templates)))


def with_settings(manifest: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(manifest)
    for name, value in settings.items():
        text = text.replace(f"@{name}@", json.dumps(value)[1:-1])
    filled: dict[str, Any] = json.loads(text)
    return filled


def test_chart_has_accounts_of_workflows(chart: Rendered) -> None:
    assert set(parts(FILES, "serviceAccountName")) <= chart.names("ServiceAccount")
    executors = {item["serviceAccountName"] for item in parts(FILES, "executor")}
    tokens = {item["metadata"]["name"]: item for item in chart.all("Secret")}
    for name in executors:
        secret = tokens[f"{name}.service-account-token"]
        assert secret["type"] == "kubernetes.io/service-account-token"
        assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
    (repository,) = {json.dumps(item) for item in parts(FILES, "artifactRepositoryRef")}
    assert json.loads(repository) == {"configMap": "swe-argo-artifacts", "key": "default"}
    assert "default" in data(chart, "swe-argo-artifacts")


def test_chart_limits_tokens(chart: Rendered) -> None:
    without = {
        item["metadata"]["name"] for item in chart.all("ServiceAccount") if "automountServiceAccountToken" in item
    }
    names = ("sandbox", "steps", "children", "trainer", "executor")
    assert without == {f"swe-argo-{name}" for name in names}


def rights(rendered: Rendered, name: str, account: str = "") -> set[tuple[str, str]]:
    (binding,) = (candidate for candidate in rendered.all("RoleBinding") if candidate["metadata"]["name"] == name)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account or name, "namespace": NAMESPACE}]
    rules = rendered.one("Role", binding["roleRef"]["name"])["rules"]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_chart_roles_are_minimal(chart: Rendered) -> None:
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


def test_cloud_roles_need_bucket_use() -> None:
    rendered = render(case=CHART / "ci" / "eks-values.yaml")
    annotated = {
        item["metadata"]["name"] for item in rendered.all("ServiceAccount") if "annotations" in item["metadata"]
    }
    assert annotated == {"swe-argo-runner", "swe-argo-steps", "swe-argo-finalizer"}
    repository = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])
    bucket = {"region": "eu-central-1", "bucket": "swe-argo-runs-111122223333"}
    assert repository["s3"].pop("keyFormat") == "nightly/logs/{{pod.name}}"
    assert repository == {"s3": {"endpoint": "s3.amazonaws.com", "insecure": False, **bucket}}


def test_external_accounts_are_kept() -> None:
    rendered = render(case=CHART / "ci" / "pipeline-namespace-only-values.yaml")
    assert rendered.names("ServiceAccount") == {"swe-argo-sandbox", "swe-argo-executor"}
    assert {manifest["metadata"]["name"] for manifest in rendered.all("RoleBinding")} == rendered.names("Role")
    assert rendered.names("WorkflowTemplate")
    assert not {"PriorityClass", "ValidatingAdmissionPolicy"} & {manifest["kind"] for manifest in rendered.objects}


def test_chart_nightly_is_current(chart: Rendered) -> None:
    assert not render(*PIPELINE).all("CronWorkflow")
    manifest, file = bare(chart.one("CronWorkflow", "swe-argo-nightly")), FILES["swe-argo-nightly"]
    times = {"schedules": ["0 2 * * *"], "timezone": "Etc/UTC", "suspend": False}
    assert manifest == {**file, "spec": {**file["spec"], **times}}


def test_chart_nightly_takes_values() -> None:
    spec = render(case=CHART / "ci" / "nightly-values.yaml").one("CronWorkflow", "swe-argo-nightly")["spec"]
    assert (spec["schedules"], spec["timezone"]) == (["30 1 * * *", "0 12 * * SUN"], "Europe/Berlin")
    arguments = {item["name"]: item["value"] for item in spec["workflowSpec"]["arguments"]["parameters"]}
    assert arguments == {
        "dataset": "verified",
        "k": "50",
        "agent": "gold",
        "model": "some model",
        "attempts": "2",
        "spec": '[select]\nrepos = ["django/django"]\n',
        "compare-with": "",
        "stop-on-canary": "true",
    }
    parameters = {item["name"] for item in FILES["swe-argo-evaluate"]["spec"]["arguments"]["parameters"]}
    assert set(arguments) <= parameters
    more = ("nightly.enabled=true", "nightly.split=dev", "nightly.backend=kubernetes", "nightly.suspend=true")
    spec = render(*PIPELINE, *more).one("CronWorkflow", "swe-argo-nightly")["spec"]
    assert spec["suspend"] is True
    assert {item["name"] for item in spec["workflowSpec"]["arguments"]["parameters"]} <= parameters


def test_chart_binds_submitters_by_kind() -> None:
    rendered = render(case=CHART / "ci" / "eks-values.yaml")
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    assert rendered.one("RoleBinding", "swe-argo-submitter")["subjects"] == [
        {"kind": "Group", "name": "evaluators", **group},
        {"kind": "User", "name": "jane@example.org", **group},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"},
    ]
    assert "swe-argo-submitter" not in render(*PIPELINE).names("Role")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["argo.create=true", "image.repository=a"], "aws.s3.bucket is empty"),
        (["aws.s3.bucket=runs"], "image.repository is empty"),
        ([*PIPELINE, "serviceAccount.name=mine"], "serviceAccount.name is mine, but the pipeline requires"),
        ([*PIPELINE, "aws.s3.insecure=true"], "Amazon S3 requires HTTPS"),
        ([*PIPELINE, "aws.s3.insecure=true", "aws.s3.endpoint=https://s3.example.org"], "change one of them"),
    ],
)
def test_incomplete_pipeline_is_refused(sets: list[str], message: str) -> None:
    assert message in refused(*sets)


@contextmanager
def api_server(folder: Path, *groups: str) -> Iterator[Path]:
    """Yield the kubeconfig of a server that serves these API groups (``apps/v1``) and v1, and of neither any object."""
    names = [(group, *group.split("/")) for group in groups]
    versions = [(name, {"groupVersion": group, "version": version}) for group, name, version in names]
    listed = [{"name": name, "versions": [version], "preferredVersion": version} for name, version in versions]
    answers: dict[str, dict[str, Any]] = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.4"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed},
    }
    for group in ("v1", *groups):
        resources = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}
        answers["/api/v1" if group == "v1" else f"/apis/{group}"] = resources

    class Discovery(Handler):
        def respond(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            self.answer(200 if answer else 404, answer or missing)

    with serve(Discovery) as address:
        yield write_kubeconfig(folder, address, "one")


def helm_output(kubeconfig: Path, *flags: str) -> str:
    """What a cluster without any object hears of an installation that it cannot take in the end."""
    sets = [f"--set={item}" for item in (*PIPELINE, *flags)]
    command = [helm(), "install", "mine", str(CHART), "--dry-run=server", "--kubeconfig", str(kubeconfig), *sets]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_chart_explains_missing_argo(tmp_path: Path) -> None:
    groups = ("apps/v1", "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1")
    with api_server(tmp_path, *groups) as without:
        output = helm_output(without)
        assert "this cluster has no Argo Workflows" in output
        assert "argo.create=false" in output
        assert "execution error" in output
        assert "execution error" not in helm_output(without, "argo.create=false")
        assert "execution error" not in helm_output(without, "argo.create=null", "aws.s3.bucket=")
    with api_server(tmp_path, *groups, "argoproj.io/v1alpha1") as with_argo:
        assert "execution error" not in helm_output(with_argo)


def test_pipeline_cases_are_complete() -> None:
    on = {case.stem.removesuffix("-values") for case in CASES if render(case=case).all("WorkflowTemplate")}
    assert on == {"s3-server", "eks", "nightly", "pipeline-namespace-only", "provider", "training"}
