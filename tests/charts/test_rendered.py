"""What the chart makes: exactly the rights, policies and settings that sandboxes need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import manifest
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.charts.chart import CASES, CHART, NAMESPACE, Rendered, reaches, render, selects

METADATA = ("169.254.169.254", "fd00:ec2::254")
PRIVATE = ("10.96.0.1", "172.20.0.1", "192.168.3.4", "100.64.1.2", "198.19.0.1", "fd12::1", "fe80::1")


@pytest.fixture(scope="module")
def defaults() -> Rendered:
    return render()


def pod(rendered: Rendered, role: str, *, network: bool) -> dict[str, Any]:
    request = SandboxRequest(
        name="sb-one",
        image="swebench/sweb.eval.x86_64.one:latest",
        deadline_s=600,
        network=network,
        labels={"run": "r", "instance": "one", "attempt": "1", "role": role},
    )
    settings = NamespaceSettings.model_validate(rendered.settings())
    return manifest(request, settings, SandboxSpec(backend="kubernetes"), None)


def policies_of(rendered: Rendered, role: str, *, network: bool) -> set[str]:
    labels = pod(rendered, role, network=network)["metadata"]["labels"]
    policies = rendered.all("NetworkPolicy")
    return {policy["metadata"]["name"] for policy in policies if selects(policy["spec"]["podSelector"], labels)}


PODS = [case for case in CASES if case.stem != "provider-values"]


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.stem)
def test_chart_settings_are_valid(case: Path) -> None:
    document = render(case=case).settings()
    NamespaceSettings.model_validate(document)
    assert set(document) == {field.alias or name for name, field in NamespaceSettings.model_fields.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_cluster_objects_name_namespace(case: Path) -> None:
    outside = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PriorityClass")
    rendered = render(case=case)
    for item in rendered.objects:
        if item["kind"] in outside:
            assert item["metadata"]["name"].endswith(f"-{NAMESPACE}")
    assert not {"ClusterRole", "ClusterRoleBinding"} & {item["kind"] for item in rendered.objects}


def test_chart_defaults_match_runner(defaults: Rendered) -> None:
    ours = NamespaceSettings.model_validate(defaults.settings()).model_dump()
    theirs = NamespaceSettings().model_dump()
    differing = {name for name in theirs if ours[name] != theirs[name]}
    assert differing == {"node_selector", "tolerations", "priority_class_name", "service_account_name"}
    assert ours["node_selector"] == {"role": "cpu-sandbox"}
    assert ours["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "ephemeral_storage": "20Gi"}


def test_node_selector_can_be_removed() -> None:
    assert render("sandbox.nodeSelector=null").settings()["nodeSelector"] == {}


def test_runner_role_is_minimal(defaults: Rendered) -> None:
    role = defaults.one("Role", "swe-argo-runner")
    rights = {
        (group, resource, verb, *rule.get("resourceNames", []))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == {
        *(("", "pods", verb) for verb in ("create", "get", "list", "watch", "delete")),
        *(("", "pods/exec", verb) for verb in ("get", "create")),
        *(("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "list", "update", "delete")),
        ("", "events", "list"),
        ("", "configmaps", "get", "swe-argo-sandbox"),
        ("networking.k8s.io", "networkpolicies", "list"),
        ("", "resourcequotas", "list"),
    }


def test_sandbox_account_has_no_rights(defaults: Rendered) -> None:
    assert defaults.one("ServiceAccount", "swe-argo-sandbox")["automountServiceAccountToken"] is False
    subjects = [subject["name"] for binding in defaults.all("RoleBinding") for subject in binding["subjects"]]
    assert subjects == ["swe-argo-runner"]


def test_external_account_gets_role() -> None:
    rendered = render(case=CHART / "ci" / "no-service-account-values.yaml")
    assert rendered.names("ServiceAccount") == {"swe-argo-sandbox"}
    (binding,) = rendered.all("RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "evaluations", "namespace": NAMESPACE}]
    for policy in rendered.all("ValidatingAdmissionPolicy"):
        assert f"system:serviceaccount:{NAMESPACE}:evaluations" in str(policy["spec"]["matchConditions"])


def test_sandboxes_are_isolated(defaults: Rendered) -> None:
    everyone = defaults.one("NetworkPolicy", "swe-argo-sandbox")["spec"]
    assert everyone["policyTypes"] == ["Ingress", "Egress"]
    assert everyone["ingress"] == everyone["egress"] == []
    for role in ("solve", "grade"):
        assert policies_of(defaults, role, network=False) == {"swe-argo-sandbox"}
    assert policies_of(defaults, "solve", network=True) == {"swe-argo-sandbox"}
    assert policies_of(defaults, "grade", network=True) == {"swe-argo-sandbox", "swe-argo-sandbox-open"}
    assert defaults.one("NetworkPolicy", "swe-argo-sandbox-open")["spec"]["policyTypes"] == ["Egress"]


@pytest.mark.parametrize(("role", "network"), [("solve", False), ("grade", False), ("grade", True)])
def test_extra_labels_keep_isolation(role: str, network: bool) -> None:
    rendered = render("aws.s3.bucket=runs", "image.repository=localhost/steps", "sandbox.solveNetwork=true")
    labels = pod(rendered, role, network=network)["metadata"]["labels"]
    policies = [item for item in rendered.all("NetworkPolicy") if selects(item["spec"]["podSelector"], labels)]
    labels |= {"swe-argo/step": "solve"}
    assert [item for item in rendered.all("NetworkPolicy") if selects(item["spec"]["podSelector"], labels)] == policies


def test_open_policy_excludes_cluster(defaults: Rendered) -> None:
    policy = defaults.one("NetworkPolicy", "swe-argo-sandbox-open")
    for inside in (*METADATA, *PRIVATE):
        assert not reaches(policy, inside), inside
    for outside in ("151.101.0.223", "198.51.100.2", "2a04:4e42::223"):
        assert reaches(policy, outside), outside


def test_grading_network_can_be_disabled() -> None:
    rendered = render("grading.network=false")
    assert rendered.names("NetworkPolicy") == {"swe-argo-sandbox"}
    assert rendered.settings()["gradingNetwork"] is False


def test_solve_network_opens_sandboxes() -> None:
    rendered = render("sandbox.solveNetwork=true", "grading.network=false")
    assert policies_of(rendered, "solve", network=True) == {"swe-argo-sandbox", "swe-argo-sandbox-open"}
    assert policies_of(rendered, "grade", network=True) == {"swe-argo-sandbox"}


def test_sandbox_dns_is_limited(defaults: Rendered) -> None:
    ports = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    (dns,) = [item for item in _egress(defaults) if "ports" in item]
    assert dns["ports"] == ports
    (peer,) = dns["to"]
    assert selects(peer["podSelector"], {"k8s-app": "kube-dns"})
    assert selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": "kube-system"})
    (rule,) = [item for item in _egress(render("sandbox.nameservers={169.254.20.10,fd00::2}")) if "ports" in item]
    assert rule == {"to": [{"ipBlock": {"cidr": item}} for item in ("169.254.20.10/32", "fd00::2/128")], "ports": ports}


def test_allowed_cidr_is_reachable() -> None:
    policy = render("grading.allowCIDRs={10.1.2.0/28}").one("NetworkPolicy", "swe-argo-sandbox-open")
    assert reaches(policy, "10.1.2.3")
    assert not reaches(policy, "10.1.2.16")


def _egress(rendered: Rendered) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = rendered.one("NetworkPolicy", "swe-argo-sandbox-open")["spec"]["egress"]
    return rules


def test_admission_denies_in_namespace(defaults: Rendered) -> None:
    policies = defaults.names("ValidatingAdmissionPolicy")
    assert len(policies) == 4
    for policy in defaults.all("ValidatingAdmissionPolicy"):
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert all("message" in item or "messageExpression" in item for item in policy["spec"]["validations"])
    bindings = defaults.all("ValidatingAdmissionPolicyBinding")
    assert {item["spec"]["policyName"] for item in bindings} == policies
    for binding in bindings:
        assert binding["spec"]["validationActions"] == ["Deny"]
        selector = binding["spec"]["matchResources"]["namespaceSelector"]
        assert selects(selector, {"kubernetes.io/metadata.name": NAMESPACE})
        assert not selects(selector, {"kubernetes.io/metadata.name": "other"})


def test_sandbox_priority_is_low(defaults: Rendered) -> None:
    (priority,) = defaults.all("PriorityClass")
    assert priority["metadata"]["name"] == defaults.settings()["priorityClassName"] == f"swe-argo-sandbox-{NAMESPACE}"
    assert -10 <= priority["value"] < 0
    assert priority["preemptionPolicy"] == "Never"


def test_existing_priority_class_is_used() -> None:
    rendered = render("priorityClass.create=false", "priorityClass.name=low")
    assert not rendered.all("PriorityClass")
    assert rendered.settings()["priorityClassName"] == "low"


def test_quota_counts_sandboxes(defaults: Rendered) -> None:
    assert not defaults.all("ResourceQuota")
    (quota,) = render("quota.enabled=true", "quota.hard.pods=7").all("ResourceQuota")
    assert quota["spec"]["hard"] == {"pods": 7}
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": [f"swe-argo-sandbox-{NAMESPACE}"]}
    (quota,) = render("quota.enabled=true", "priorityClass.create=false").all("ResourceQuota")
    assert "scopeSelector" not in quota["spec"]


def test_namespace_only_install_works() -> None:
    rendered = render(case=CHART / "ci" / "namespace-only-values.yaml")
    kinds = {"ConfigMap", "NetworkPolicy", "ResourceQuota", "Role", "RoleBinding", "ServiceAccount"}
    assert {manifest["kind"] for manifest in rendered.objects} == kinds
    assert rendered.settings()["priorityClassName"] is None
