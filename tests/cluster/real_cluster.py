"""A cluster that tests run on, known by its kubeconfig."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

COMMAND = ROOT / "cluster" / "local" / "cluster"
TIMEOUT_S = 660
"""More than what any ``kubectl wait`` here is told, so that it says itself what did not come."""


class KubectlError(Exception):
    """A kubectl that failed: the command and what it said."""


@dataclass(frozen=True)
class Cluster:
    """A cluster of cluster/local: its kubeconfig lies in its state folder, beside the programs in ``bin``."""

    kubeconfig: Path

    @property
    def state(self) -> Path:
        return self.kubeconfig.parent

    @property
    def environment(self) -> dict[str, str]:
        """This process' environment, with the cluster as the one that its programs find."""
        path = f"{self.state / 'bin'}:{os.environ.get('PATH', '')}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path, "SWE_ARGO_CLUSTER": str(self.state)}

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """What ``kubectl ARGS`` printed. Raises KubectlError, with what it said, if it failed."""
        result = self.try_kubectl(*args, input=input)
        if result.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: exit code {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def try_kubectl(
        self, *args: str, input: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """``kubectl ARGS``, whose failure is a result."""
        return subprocess.run(
            ["kubectl", *args],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A namespace of its own name, with its default service account there; deleted with all that is in it."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", name)
        try:
            # Its controller takes a while where the API server was away just before.
            self.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=600s")
            yield name
        finally:
            self.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", "--wait=false")
            self.kubectl("delete", "namespace", name, "--wait=false")

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """``cluster/local/cluster ARGS`` for this cluster."""
        return subprocess.run(
            [str(COMMAND), *args], env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod through the Eviction API, as ``kubectl drain`` does."""
        meta = {"name": pod, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))

    def crash(self, namespace: str, pod: str) -> None:
        """kill -9 of all that runs in the pod's container, from the node."""
        jsonpath = "-o=jsonpath={.status.containerStatuses[0].containerID}"
        container = self.kubectl("-n", namespace, "get", "pod", pod, jsonpath).removeprefix("containerd://")
        words = ["ctr", "--address", str(self.state / "containerd.sock"), "-n", "k8s.io", "task", "kill"]
        subprocess.run(
            [*words, "--all", "--signal", "SIGKILL", container], env=self.environment, check=True, capture_output=True
        )

    def images(self) -> list[str]:
        """The references of the images on the node."""
        result = self.command("images")
        assert result.returncode == 0, result.stderr
        return result.stdout.split()

    def load(self, image: str | Path) -> None:
        """Put an image on the node: an archive (docker save, OCI), or the name of one in the local Docker engine."""
        result = self.command("load", str(image))
        assert result.returncode == 0, result.stderr
