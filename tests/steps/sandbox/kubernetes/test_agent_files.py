"""How an agent's files come into a pod, by what the API server takes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes.agent_files import add_agent_files, agent_image, has_agent_files, ways
from swe_argo.steps.sandbox.kubernetes.backend import KubernetesBackend
from swe_argo.steps.sandbox.kubernetes.checks.admission import try_ways
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import manifest
from swe_argo.steps.sandbox.protocol import BundleMount, SandboxRequest
from swe_argo.steps.sandbox.readiness import SandboxNeeds
from tests.kube_api import KubeApi, Request, Response, refusal, serving

IMAGE = f"registry.example.com/team/codex@sha256:{'a' * 64}"
BUNDLE = BundleMount("sha256:b", None, IMAGE)
SPEC = SandboxSpec(backend="kubernetes")


@dataclass
class Server(KubeApi):
    """An API server that takes pods as a dry run, with or without volumes of images."""

    knows_images: bool = True
    refused: str = ""

    def respond(self, request: Request) -> Response:
        if request.method != "POST" or request.query.get("dryRun") != "All":
            return super().respond(request)
        pod = copy.deepcopy(request.body)
        if self.refused and self.refused in str(pod):
            return refusal(403, f"admission webhook denied the request: no {self.refused}")
        if not self.knows_images:  # as dropImageVolumes of Kubernetes does
            gone = {volume["name"] for volume in pod["spec"]["volumes"] if "image" in volume}
            pod["spec"]["volumes"] = [item for item in pod["spec"]["volumes"] if item["name"] not in gone]
            box = pod["spec"]["containers"][0]
            box["volumeMounts"] = [item for item in box["volumeMounts"] if item["name"] not in gone]
        return 201, pod


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as api:
        yield api


def plain(namespace: NamespaceSettings) -> dict[str, Any]:
    request = SandboxRequest(name="sb-1", image="x:1", deadline_s=60, network=False, labels={"role": "solve"})
    return manifest(request, namespace, SPEC, None)


def pod_with_files(server: Server, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    namespace = NamespaceSettings.model_validate(settings or {})
    backend = KubernetesBackend(server.cluster(), SPEC, namespace, RetryPolicy(total_s=1))
    return backend._with_agent_files(plain(namespace), BUNDLE)


def test_image_volume_is_read_only() -> None:
    before = plain(NamespaceSettings())
    pod = add_agent_files(before, BUNDLE, NamespaceSettings(), "image-volume")
    assert pod["spec"]["volumes"].pop() == {
        "name": "agent-files",
        "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"},
    }
    mounted = {"name": "agent-files", "mountPath": "/opt/swe-argo/agent", "readOnly": True}
    assert pod["spec"]["containers"][0]["volumeMounts"].pop() == mounted
    assert pod == before


def test_init_container_copies_files() -> None:
    settings = NamespaceSettings.model_validate({"agentFilesSizeLimit": "1Gi", "imagePullSecrets": ["own"]})
    pod = add_agent_files(plain(settings), BUNDLE, settings, "copy")
    assert pod["spec"]["volumes"][-1] == {"name": "agent-files", "emptyDir": {"sizeLimit": "1Gi"}}
    assert pod["spec"]["containers"][0]["volumeMounts"][-1]["readOnly"] is True
    [copier] = pod["spec"]["initContainers"]
    assert copier["image"] == agent_image(pod) == IMAGE
    assert copier["command"] == ["/.swe-argo/copy", "copy", "/", "/.swe-argo/files"]
    assert copier["volumeMounts"] == [{"name": "agent-files", "mountPath": "/.swe-argo/files"}]
    assert copier["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert copier["resources"] == pod["spec"]["containers"][0]["resources"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "own"}]


def test_files_without_image_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"swe-argo agents push NAME IMAGE .*--agent-image") as caught:
        add_agent_files(plain(NamespaceSettings()), BundleMount("sha256:b", None, None), NamespaceSettings(), "copy")
    assert caught.value.field == "agent.image"


def test_image_volume_is_probed_once(server: Server) -> None:
    backend = KubernetesBackend(server.cluster(), SPEC, NamespaceSettings(), RetryPolicy(total_s=1))
    for _ in range(2):
        assert "image" in backend._with_agent_files(plain(NamespaceSettings()), BUNDLE)["spec"]["volumes"][-1]
    assert [where.partition("?")[2] for _, where, _ in server.requests] == ["dryRun=All"]
    assert server.names("pods") == []


def test_dropped_image_volume_needs_copy(server: Server) -> None:
    server.knows_images = False
    assert "emptyDir" in pod_with_files(server)["spec"]["volumes"][-1]


def test_refused_image_volume_needs_copy(server: Server) -> None:
    server.refused = "'image': {"
    assert has_agent_files(pod_with_files(server))
    assert "emptyDir" in pod_with_files(server)["spec"]["volumes"][-1]


@pytest.mark.parametrize("way", ["image-volume", "copy"])
def test_agent_files_setting_skips_probe(server: Server, way: str) -> None:
    server.knows_images = way == "copy"
    kind = {"image-volume": "image", "copy": "emptyDir"}[way]
    assert kind in pod_with_files(server, {"agentFiles": way})["spec"]["volumes"][-1]
    assert server.requests == []
    assert ways(NamespaceSettings.model_validate({"agentFiles": way})) == (way,)


@pytest.mark.parametrize(("knows", "kind"), [(True, "image"), (False, "emptyDir")])
def test_plan_tries_the_way_of_runs(server: Server, knows: bool, kind: str) -> None:
    server.knows_images = knows
    needs = SandboxNeeds(images=["x:1"], acts=True, solves=True, grading_network=False, timeout_s=60, bundle=BUNDLE)
    with server.cluster().client() as client:
        solve, grade = try_ways(server.cluster(), client, SPEC, needs, NamespaceSettings())[0]
    assert kind in solve["spec"]["volumes"][-1]
    assert [volume["name"] for volume in grade["spec"]["volumes"]] == ["jobs"]
