"""The pod that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import label, manifest, owner_reference, resources
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.settings import settings

LABELS = {"run": "r1", "instance": "django__django-11099", "attempt": "2", "role": "solve"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "u-1"}


def request(**options: Any) -> SandboxRequest:
    chosen_spec = {"name": "sb-x", "image": "swebench/x:latest", "deadline_s": 90.2, "network": False, "labels": LABELS}
    return SandboxRequest(**{**chosen_spec, **options})


def pod(
    chosen_spec: dict[str, Any] | None = None,
    namespace: dict[str, Any] | None = None,
    owner: Any = None,
    **options: Any,
) -> Any:
    spec = SandboxSpec(backend="kubernetes", **(chosen_spec or {}))
    return manifest(request(**options), NamespaceSettings.model_validate(namespace or {}), spec, owner)


@pytest.fixture(autouse=True)
def fresh_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("POD_NAME", "POD_UID", "SWE_ARGO_LEASE"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_pod_has_labels_and_owner() -> None:
    result = pod(owner=OWNER)
    assert result["metadata"]["name"] == "sb-x"
    assert result["metadata"]["labels"] == {
        "swe-argo/run": "r1",
        "swe-argo/instance": "django__django-11099",
        "swe-argo/attempt": "2",
        "swe-argo/role": "solve",
        "swe-argo/network": "none",
    }
    assert result["metadata"]["annotations"] == {
        "swe-argo/instance": "django__django-11099",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    assert result["metadata"]["ownerReferences"] == [OWNER]
    assert result["spec"]["activeDeadlineSeconds"] == 91
    assert "ownerReferences" not in pod()["metadata"]


def test_pod_has_no_privileges() -> None:
    spec = pod()["spec"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (box,) = spec["containers"]
    assert box["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}
    assert spec["volumes"] == [{"name": "jobs", "emptyDir": {"sizeLimit": "2048Mi"}}]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not {"initContainers", "ephemeralContainers"} & set(spec)
    assert "envFrom" not in box
    assert not any("valueFrom" in variable for variable in box.get("env", []))


def test_only_browsers_get_a_capability() -> None:
    (box,) = pod(browsers=True, network=True)["spec"]["containers"]
    assert box["securityContext"]["capabilities"] == {"add": ["SYS_ADMIN"]}
    assert box["securityContext"]["allowPrivilegeEscalation"] is False


def test_run_registry_beats_namespace() -> None:
    def image(**options: Any) -> str:
        return str(pod(namespace={"registry": "hub.example/team"}, **options)["spec"]["containers"][0]["image"])

    assert image() == "hub.example/team/swebench/x:latest"
    assert image(registry="mirror.example:5000/hub") == "mirror.example:5000/hub/swebench/x:latest"


def test_pod_runs_once_as_root() -> None:
    spec = pod(registry="mirror.example:5000/hub")["spec"]
    (box,) = spec["containers"]
    assert box["image"] == "mirror.example:5000/hub/swebench/x:latest"
    assert (box["imagePullPolicy"], box["command"][0], box["args"]) == ("IfNotPresent", "/bin/sh", [])
    assert box["volumeMounts"] == [{"name": "jobs", "mountPath": "/run/swe-argo"}]
    assert (spec["securityContext"]["runAsUser"], spec["restartPolicy"]) == (0, "Never")


def test_working_directory_is_the_root() -> None:
    assert pod()["spec"]["containers"][0]["workingDir"] == "/"


def test_namespace_settings_are_applied() -> None:
    toleration = {"key": "sandboxes", "operator": "Exists"}
    spec = pod(
        namespace={
            "nodeSelector": {"role": "cpu-sandbox"},
            "tolerations": [toleration],
            "priorityClassName": "low",
            "imagePullSecrets": ["hub"],
            "runtimeClassName": "gvisor",
            "serviceAccountName": "swe-argo-sandbox",
            "jobsSizeLimit": "100Mi",
        }
    )["spec"]
    assert spec["nodeSelector"]["role"] == "cpu-sandbox"
    assert spec["tolerations"] == [toleration]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("low", "gvisor")
    assert spec["imagePullSecrets"] == [{"name": "hub"}]
    assert spec["serviceAccountName"] == "swe-argo-sandbox"
    assert spec["volumes"][0]["emptyDir"] == {"sizeLimit": "100Mi"}


def test_unset_fields_are_omitted() -> None:
    spec = pod()["spec"]
    assert not {"tolerations", "priorityClassName", "runtimeClassName", "imagePullSecrets"} & set(spec)


def test_spec_selector_beats_namespaces() -> None:
    spec = pod(
        chosen_spec={"kubernetes": {"node_selector": ["pool=big", "zone=a"]}},
        namespace={"nodeSelector": {"role": "cpu"}},
    )["spec"]
    assert spec["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "pool": "big",
        "zone": "a",
    }


def test_platform_selects_nodes() -> None:
    assert pod(platform="linux/arm64/v8")["spec"]["nodeSelector"]["kubernetes.io/arch"] == "arm64"


@pytest.mark.parametrize("text", ["pool", "=big", "pool=a b"])
def test_invalid_selector_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.kubernetes\.node_selector: .* is not key=value"):
        pod(chosen_spec={"kubernetes": {"node_selector": [text]}})


def test_dns_is_off_without_network() -> None:
    spec = pod(namespace={"nameservers": ["192.0.2.53"]})["spec"]
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})


def test_dns_is_cluster_or_given() -> None:
    assert pod(network=True)["metadata"]["labels"]["swe-argo/network"] == "open"
    assert pod(network=True)["spec"]["dnsPolicy"] == "ClusterFirst"
    spec = pod(network=True, namespace={"nameservers": ["192.0.2.53"]})["spec"]
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["192.0.2.53"]})


def amounts(namespace: dict[str, Any] | None = None, **options: Any) -> dict[str, dict[str, str]]:
    return resources(request(**options), NamespaceSettings.model_validate(namespace or {}))


def test_requests_are_below_limits() -> None:
    assert amounts() == {
        "requests": {"cpu": "500m", "memory": "1024Mi", "ephemeral-storage": "1024Mi"},
        "limits": {"cpu": "4", "memory": "8192Mi", "ephemeral-storage": "20480Mi"},
    }


def test_spec_sets_limit_and_request() -> None:
    assert amounts(cpus=0.25, memory_mb=512, disk_mb=300) == {
        "requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "300Mi"},
        "limits": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "300Mi"},
    }


def test_resource_factor_scales_amounts() -> None:
    grown = amounts(cpus=1.5, memory_mb=512, resource_factor=2.0)
    assert grown["limits"] == {"cpu": "3", "memory": "1024Mi", "ephemeral-storage": "40960Mi"}
    assert grown["requests"] == {"cpu": "1", "memory": "1024Mi", "ephemeral-storage": "2048Mi"}
    assert pod(resource_factor=2.0)["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "4096Mi"}


def test_unset_amounts_are_unlimited() -> None:
    assert amounts({"resources": {"requests": {"cpu": "10m"}, "limits": {}}}) == {
        "requests": {"cpu": "10m"},
        "limits": {},
    }
    decimal = amounts({"resources": {"requests": {}, "limits": {"memory": "1500M", "cpu": "0.1"}}})
    assert decimal == {"requests": {}, "limits": {"memory": "1500000000", "cpu": "100m"}}


@pytest.mark.parametrize("text", ["", "django__django-11099", "a" * 63, "9"])
def test_legal_label_is_unchanged(text: str) -> None:
    assert label(text) == text


@pytest.mark.parametrize("text", ["a" * 64, "owner/name:tag", "ends-in-dash-", "ü", "a b", "___", "x" * 300])
def test_any_text_becomes_a_legal_label(text: str) -> None:
    result = label(text)
    assert 0 < len(result) <= 63
    assert result[0].isalnum()
    assert result[-1].isalnum()
    assert all(c.isascii() and (c.isalnum() or c in "-_.") for c in result)
    assert label(text + "x") != result


def test_plain_process_is_no_owner() -> None:
    assert owner_reference() is None


def test_step_pod_owns_its_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "step-1")
    assert owner_reference() is None
    settings.cache_clear()
    monkeypatch.setenv("POD_UID", "u-2")
    assert owner_reference() == {"apiVersion": "v1", "kind": "Pod", "name": "step-1", "uid": "u-2"}


def test_runner_lease_owns_its_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "workbench")
    monkeypatch.setenv("POD_UID", "u-3")
    monkeypatch.setenv("SWE_ARGO_LEASE", "swe-argo-r1/u-4")
    owner = owner_reference()
    assert owner == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "name": "swe-argo-r1",
        "uid": "u-4",
    }
