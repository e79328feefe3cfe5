"""The chart, installed for a test: its namespace, and sandboxes there as the backend would make them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import manifest
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.charts.chart import CHART, helm
from tests.cluster.installed_chart import SMALL, account_kubeconfig
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import wait_for

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Account:
    """A service account, by its own token."""

    cluster: Cluster
    namespace: str
    kubeconfig: Path

    def tries(self, *args: str, input: object = None) -> subprocess.CompletedProcess[str]:
        """``kubectl ARGS`` in the namespace, as this account; ``input`` goes to its stdin as JSON."""
        text = None if input is None else json.dumps(input)
        place = ["--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace]
        return self.cluster.try_kubectl(*place, *args, input=text)

    def may(self, *args: str, input: object = None) -> str:
        """The same, which must go well."""
        result = self.tries(*args, input=input)
        assert result.returncode == 0, f"kubectl {' '.join(args)}: {result.stderr}"
        return result.stdout

    def refused(self, *args: str, input: object = None) -> str:
        """The same, which must be forbidden; what the API server said."""
        result = self.tries(*args, input=input)
        assert result.returncode != 0, f"kubectl {' '.join(args)} was let through: {result.stdout}"
        assert "forbidden" in result.stderr.lower(), result.stderr
        return result.stderr


@dataclass(frozen=True)
class Release:
    """The chart in a namespace, and a Lease there that owns the sandboxes of the test."""

    cluster: Cluster
    namespace: str
    folder: Path
    lease: str

    def kubectl(self, *args: str, input: object = None) -> str:
        """As an administrator, in the namespace."""
        return self.cluster.kubectl("-n", self.namespace, *args, input=None if input is None else json.dumps(input))

    def account(self, name: str) -> Account:
        return Account(
            self.cluster, self.namespace, account_kubeconfig(self.cluster, self.namespace, name, self.folder)
        )

    def settings(self) -> NamespaceSettings:
        text = self.kubectl("get", "configmap", "swe-argo-sandbox", "-o", r"jsonpath={.data.sandbox\.yaml}")
        return NamespaceSettings.model_validate(yaml.safe_load(text))

    def sandbox(self, image: str, *, role: str = "solve", network: bool = False, browsers: bool = False) -> Manifest:
        """The pod that the backend would make."""
        request = SandboxRequest(
            name=f"sb-{role}-{'open' if network else 'none'}",
            image=image,
            deadline_s=900,
            network=network,
            labels={"run": "try", "instance": "one__one-1", "attempt": "1", "role": role},
            browsers=browsers,
        )
        owner = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "swe-argo-try", "uid": self.lease}
        return manifest(request, self.settings(), SandboxSpec(backend="kubernetes"), owner)

    def start(self, *pods: Manifest) -> None:
        """Make pods as an administrator, and wait until they run."""
        self.kubectl("create", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": list(pods)})
        names = [f"pod/{pod['metadata']['name']}" for pod in pods]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=600s", *names)


def plain_pod(name: str, image: str, **labels: str) -> Manifest:
    """A pod that is no sandbox."""
    container = {
        "name": "main",
        "image": image,
        "command": ["/bin/sh", "-c", "while :; do sleep 1; done"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def run_helm(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    """Helm on the cluster. Skips where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", cluster.environment["PATH"])
        program = helm()
    return subprocess.run([program, *args], env=cluster.environment, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def installed(cluster: Cluster, folder: Path, *flags: str, small: bool = True) -> Iterator[Release]:
    """A namespace with the chart; both are gone at the end."""
    with cluster.namespace("chart") as namespace:
        place = ["--namespace", namespace]
        result = run_helm(cluster, "install", "mine", str(CHART), *place, *(SMALL if small else []), *flags)
        assert result.returncode == 0, result.stderr
        try:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "swe-argo-try"}}
            created = cluster.kubectl("-n", namespace, "create", "-o", "json", "-f", "-", input=json.dumps(lease))
            _in_force(cluster, namespace)
            yield Release(cluster, namespace, folder, json.loads(created)["metadata"]["uid"])
        finally:
            result = run_helm(cluster, "uninstall", "mine", *place)
            assert result.returncode == 0, result.stderr


def _in_force(cluster: Cluster, namespace: str) -> None:
    """Wait until the admission policies are: the server looks for new ones once a second."""
    pod = json.dumps(plain_pod("sb-none", "localhost/none:1"))
    flags = ["-n", namespace, "create", "--dry-run=server", "-f", "-"]
    wait_for(lambda: "ValidatingAdmissionPolicy" in cluster.try_kubectl(*flags, input=pod).stderr)
