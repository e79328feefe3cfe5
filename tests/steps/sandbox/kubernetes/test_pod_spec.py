"""The pod of a sandbox, with and without an agent's files."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes.backend import KubernetesBackend
from swe_argo.steps.sandbox.kubernetes.checks.admission import try_ways
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import (
    add_agent_files,
    agent_image,
    file_deliveries,
    manifest,
    owner_reference,
    resources,
    to_label_value,
)
from swe_argo.steps.sandbox.protocol import BundleMount, SandboxNeeds, SandboxRequest
from swe_argo.steps.settings import settings
from tests.kube_api import KubeApi, Request, Response, refusal, serving

LABELS = {"run": "r1", "instance": "django__django-11099", "attempt": "2", "role": "solve"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "u-1"}
SPEC = SandboxSpec(backend="kubernetes")


def request(**options: Any) -> SandboxRequest:
    defaults = {"name": "sb-x", "image": "swebench/x:latest", "deadline_s": 90.2, "network": False, "labels": LABELS}
    return SandboxRequest(**{**defaults, **options})


def pod(namespace: dict[str, Any] | None = None, owner: Any = None, table: Any = None, **options: Any) -> Any:
    """Return the manifest; ``table``: the spec's table ``sandbox.kubernetes``."""
    spec = SandboxSpec.model_validate({"backend": "kubernetes", "kubernetes": table or {}})
    return manifest(request(**options), NamespaceSettings.model_validate(namespace or {}), spec, owner)


def test_pod_has_labels_and_owner() -> None:
    meta = pod(owner=OWNER)["metadata"]
    assert meta["name"] == "sb-x"
    assert meta["labels"] == {**{f"swe-argo/{key}": value for key, value in LABELS.items()}, "swe-argo/network": "none"}
    assert meta["annotations"] == {
        "swe-argo/instance": "django__django-11099",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    assert meta["ownerReferences"] == [OWNER]
    assert pod(owner=OWNER)["spec"]["activeDeadlineSeconds"] == 91
    assert "ownerReferences" not in pod()["metadata"]


def test_pod_has_no_privileges() -> None:
    spec = pod()["spec"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (box,) = spec["containers"]
    assert box["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}
    assert spec["volumes"] == [{"name": "jobs", "emptyDir": {"sizeLimit": "2048Mi"}}]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"} & set(spec)
    assert "envFrom" not in box
    assert not any("valueFrom" in variable for variable in box.get("env", []))


def test_only_browsers_get_a_capability() -> None:
    (box,) = pod(browsers=True, network=True)["spec"]["containers"]
    assert box["securityContext"]["capabilities"] == {"add": ["SYS_ADMIN"]}
    assert box["securityContext"]["allowPrivilegeEscalation"] is False


def test_run_registry_beats_namespace() -> None:
    def image(**options: Any) -> str:
        return str(pod({"registry": "hub.example/team"}, **options)["spec"]["containers"][0]["image"])

    assert image() == "hub.example/team/swebench/x:latest"
    assert image(registry="mirror.example:5000/hub") == "mirror.example:5000/hub/swebench/x:latest"


def test_pod_runs_once_as_root() -> None:
    spec = pod()["spec"]
    (box,) = spec["containers"]
    assert (box["imagePullPolicy"], box["command"][0], box["args"]) == ("IfNotPresent", "/bin/sh", [])
    assert (box["volumeMounts"], box["workingDir"]) == ([{"name": "jobs", "mountPath": "/run/swe-argo"}], "/")
    assert (spec["securityContext"]["runAsUser"], spec["restartPolicy"]) == (0, "Never")


def test_namespace_settings_are_applied() -> None:
    same = {
        "tolerations": [{"key": "sandboxes", "operator": "Exists"}],
        "priorityClassName": "low",
        "runtimeClassName": "gvisor",
        "serviceAccountName": "swe-argo-sandbox",
    }
    others = {"nodeSelector": {"role": "cpu-sandbox"}, "imagePullSecrets": ["hub"], "jobsSizeLimit": "100Mi"}
    spec = pod(same | others)["spec"]
    assert same.items() <= spec.items()
    assert spec["nodeSelector"]["role"] == "cpu-sandbox"
    assert spec["imagePullSecrets"] == [{"name": "hub"}]
    assert spec["volumes"][0]["emptyDir"] == {"sizeLimit": "100Mi"}
    assert not {"tolerations", "priorityClassName", "runtimeClassName", "imagePullSecrets"} & set(pod()["spec"])


def test_spec_selector_beats_namespaces() -> None:
    spec = pod({"nodeSelector": {"role": "cpu"}}, table={"node_selector": ["pool=big", "zone=a"]})["spec"]
    platform = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    assert spec["nodeSelector"] == platform | {"pool": "big", "zone": "a"}
    assert pod(platform="linux/arm64/v8")["spec"]["nodeSelector"]["kubernetes.io/arch"] == "arm64"


@pytest.mark.parametrize("text", ["pool", "=big", "pool=a b"])
def test_invalid_selector_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.kubernetes\.node_selector: .* is not key=value"):
        pod(table={"node_selector": [text]})


@pytest.mark.parametrize(
    ("network", "nameservers", "policy", "config"),
    [
        (False, ["192.0.2.53"], "None", {"nameservers": ["127.0.0.1"]}),
        (True, [], "ClusterFirst", None),
        (True, ["192.0.2.53"], "None", {"nameservers": ["192.0.2.53"]}),
    ],
)
def test_dns_needs_network(network: bool, nameservers: list[str], policy: str, config: object) -> None:
    result = pod({"nameservers": nameservers}, network=network)
    assert (result["spec"]["dnsPolicy"], result["spec"].get("dnsConfig")) == (policy, config)
    assert result["metadata"]["labels"]["swe-argo/network"] == ("open" if network else "none")


@pytest.mark.parametrize(
    ("options", "requests", "limits"),
    [
        ({}, ("500m", "1024Mi", "1024Mi"), ("4", "8192Mi", "20480Mi")),
        ({"cpus": 0.25, "memory_mb": 512, "disk_mb": 300}, *[("250m", "512Mi", "300Mi")] * 2),
        ({"cpus": 1.5, "memory_mb": 512, "resource_factor": 2}, ("1", "1024Mi", "2048Mi"), ("3", "1024Mi", "40960Mi")),
    ],
)
def test_requests_are_below_limits(options: Any, requests: tuple[str, ...], limits: tuple[str, ...]) -> None:
    names = ("cpu", "memory", "ephemeral-storage")
    expected = {"requests": dict(zip(names, requests, strict=True)), "limits": dict(zip(names, limits, strict=True))}
    assert resources(request(**options), NamespaceSettings()) == expected
    if "resource_factor" in options:
        assert pod(**options)["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "4096Mi"}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"requests": {"cpu": "10m"}, "limits": {}}, {"requests": {"cpu": "10m"}, "limits": {}}),
        (
            {"requests": {}, "limits": {"memory": "1500M", "cpu": "0.1"}},
            {"requests": {}, "limits": {"memory": "1500000000", "cpu": "100m"}},
        ),
    ],
)
def test_unset_amounts_are_unlimited(table: dict[str, Any], expected: dict[str, Any]) -> None:
    assert resources(request(), NamespaceSettings.model_validate({"resources": table})) == expected


LEGAL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@given(st.from_regex(LEGAL, fullmatch=True) | st.text(min_size=1, max_size=300))
def test_any_text_becomes_a_legal_label(text: str) -> None:
    result = to_label_value(text)
    assert LEGAL.fullmatch(result)
    assert (result == text) == bool(LEGAL.fullmatch(text))
    assert to_label_value(text + "x") != result


@pytest.mark.parametrize(
    ("environment", "owner"),
    [
        ({}, None),
        ({"POD_NAME": "step-1"}, None),
        ({"POD_NAME": "step", "POD_UID": "u-1"}, OWNER),
        (
            {"POD_NAME": "workbench", "POD_UID": "u-3", "SWE_ARGO_LEASE": "swe-argo-r1/u-4"},
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "swe-argo-r1", "uid": "u-4"},
        ),
    ],
    ids=["process", "no uid", "pod", "lease"],
)
def test_owner_is_the_pod_or_lease(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], owner: dict[str, str] | None
) -> None:
    for name in ("POD_NAME", "POD_UID", "SWE_ARGO_LEASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    assert owner_reference() == owner
    monkeypatch.undo()
    settings.cache_clear()


# -- an agent's files

IMAGE = f"registry.example.com/team/codex@sha256:{'a' * 64}"
BUNDLE = BundleMount("sha256:b", None, IMAGE)


@dataclass
class DryRunApi(KubeApi):
    """An API server that accepts pods as a dry run, with or without image volumes."""

    knows_images: bool = True
    refused: str = ""

    def respond(self, request: Request) -> Response:
        if request.method != "POST" or request.query.get("dryRun") != "All":
            return super().respond(request)
        pod = copy.deepcopy(request.body)
        if self.refused and self.refused in str(pod):
            return refusal(403, f"admission webhook denied the request: no {self.refused}")
        if not self.knows_images:  # as dropImageVolumes of Kubernetes does
            dropped = {volume["name"] for volume in pod["spec"]["volumes"] if "image" in volume}
            pod["spec"]["volumes"] = [item for item in pod["spec"]["volumes"] if item["name"] not in dropped]
            box = pod["spec"]["containers"][0]
            box["volumeMounts"] = [item for item in box["volumeMounts"] if item["name"] not in dropped]
        return 201, pod


@pytest.fixture
def api() -> Iterator[DryRunApi]:
    with serving(DryRunApi()) as api:
        yield api


def backend(api: DryRunApi, **namespace: Any) -> KubernetesBackend:
    return KubernetesBackend(api.cluster(), SPEC, NamespaceSettings.model_validate(namespace), RetryPolicy(total_s=1))


def files_volume(api: DryRunApi, **namespace: Any) -> dict[str, Any]:
    """Return the volume of the agent's files in a pod of this cluster."""
    result = backend(api, **namespace)._with_agent_files(pod(namespace), BUNDLE)
    assert agent_image(result) == IMAGE
    return dict(result["spec"]["volumes"][-1])


def test_image_volume_is_read_only() -> None:
    result = add_agent_files(pod(), BUNDLE, NamespaceSettings(), "image-volume")
    image = {"reference": IMAGE, "pullPolicy": "IfNotPresent"}
    assert result["spec"]["volumes"].pop() == {"name": "agent-files", "image": image}
    mount = {"name": "agent-files", "mountPath": "/opt/swe-argo/agent", "readOnly": True}
    assert result["spec"]["containers"][0]["volumeMounts"].pop() == mount
    assert result == pod()


def test_init_container_copies_files() -> None:
    namespace = {"agentFilesSizeLimit": "1Gi", "imagePullSecrets": ["own"]}
    result = add_agent_files(pod(namespace), BUNDLE, NamespaceSettings.model_validate(namespace), "copy")
    assert result["spec"]["volumes"][-1] == {"name": "agent-files", "emptyDir": {"sizeLimit": "1Gi"}}
    assert result["spec"]["containers"][0]["volumeMounts"][-1]["readOnly"] is True
    [copier] = result["spec"]["initContainers"]
    assert copier["image"] == agent_image(result) == IMAGE
    assert copier["command"] == ["/.swe-argo/copy", "copy", "/", "/.swe-argo/files"]
    assert copier["volumeMounts"] == [{"name": "agent-files", "mountPath": "/.swe-argo/files"}]
    assert copier["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert copier["resources"] == result["spec"]["containers"][0]["resources"]
    assert result["spec"]["imagePullSecrets"] == [{"name": "own"}]


def test_files_without_image_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"swe-argo agents push NAME IMAGE .*--agent-image") as caught:
        add_agent_files(pod(), BundleMount("sha256:b", None, None), NamespaceSettings(), "copy")
    assert caught.value.field == "agent.image"


def test_image_volume_is_probed_once(api: DryRunApi) -> None:
    asking = backend(api)
    for _ in range(2):
        assert "image" in asking._with_agent_files(pod(), BUNDLE)["spec"]["volumes"][-1]
    assert [where.partition("?")[2] for _, where, _ in api.requests] == ["dryRun=All"]
    assert api.names("pods") == []


@pytest.mark.parametrize(("knows_images", "refused"), [(False, ""), (True, "'image': {")], ids=["dropped", "refused"])
def test_missing_image_volume_needs_copy(api: DryRunApi, knows_images: bool, refused: str) -> None:
    api.knows_images, api.refused = knows_images, refused
    assert "emptyDir" in files_volume(api)


@pytest.mark.parametrize(("way", "kind"), [("image-volume", "image"), ("copy", "emptyDir")])
def test_agent_files_setting_skips_probe(api: DryRunApi, way: str, kind: str) -> None:
    api.knows_images = way == "copy"
    assert kind in files_volume(api, agentFiles=way)
    assert api.requests == []
    assert file_deliveries(NamespaceSettings.model_validate({"agentFiles": way})) == (way,)


@pytest.mark.parametrize(("knows_images", "kind"), [(True, "image"), (False, "emptyDir")])
def test_plan_tries_the_way_of_runs(api: DryRunApi, knows_images: bool, kind: str) -> None:
    api.knows_images = knows_images
    needs = SandboxNeeds(images=["x:1"], acts=True, solves=True, grading_network=False, timeout_s=60, bundle=BUNDLE)
    with api.cluster().client() as client:
        solve, grade = try_ways(api.cluster(), client, SPEC, needs, NamespaceSettings())[0]
    assert kind in solve["spec"]["volumes"][-1]
    assert [volume["name"] for volume in grade["spec"]["volumes"]] == ["jobs"]
