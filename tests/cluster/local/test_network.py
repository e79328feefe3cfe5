"""The cluster's network: names, Services, and NetworkPolicies, each denial beside a connection that is allowed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.real_cluster import Cluster

pytestmark = pytest.mark.cluster

API_SERVICE, API_ADDRESS, KUBELET = ("10.96.0.1", 443), ("10.244.0.1", 6443), ("10.244.0.1", 10250)
SERVER = """
import socket
server = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"hello")
"""
CONNECT = """
import signal, socket, sys
signal.alarm(3)  # of a name, too, that nobody resolves
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))
print(connection.getpeername()[0])
"""


@dataclass(frozen=True)
class Town:
    """Three pods in a namespace: ``server`` listens on 8080 and is Service ``web``, ``free`` and ``locked`` ask."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, input=input)

    def run(self, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.try_kubectl("-n", self.namespace, "exec", pod, "--", *command)

    def reaches(self, pod: str, address: tuple[str, int]) -> bool:
        """Whether one of five tries connects: what is allowed may be slow on a busy machine."""
        return any(self._connects(pod, address) for _ in range(5))

    def is_kept_from(self, pod: str, address: tuple[str, int]) -> bool:
        """Whether a try comes to fail: beside it stands one that is allowed. A policy is in force some 50 ms after it

        was made, on a busy machine later.
        """
        return any(not self._connects(pod, address) for _ in range(10))

    def _connects(self, pod: str, address: tuple[str, int], timeout_s: float = 2) -> bool:
        host, port = address
        return self.run(pod, "python3", "-c", CONNECT, host, str(port), str(timeout_s)).returncode == 0

    def address(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    def policy(self, name: str, selects: str, **spec: object) -> None:
        types = [key.title() for key in spec]
        body = {"podSelector": {"matchLabels": {"app": selects}}, "policyTypes": types, **spec}
        self.apply("networking.k8s.io/v1", "NetworkPolicy", name, body)

    def pod(self, name: str, image: str, command: list[str], label: str = "") -> None:
        container = {
            "name": "main",
            "image": image,
            "command": command,
            "ports": [{"name": "web", "containerPort": 8080}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        self.apply("v1", "Pod", name, spec, {"app": label or name})

    def apply(
        self, version: str, kind: str, name: str, spec: dict[str, object], labels: dict[str, str] | None = None
    ) -> None:
        meta = {"name": name, "labels": labels or {}}
        body = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
        self.kubectl("apply", "-f", "-", input=json.dumps(body))


@pytest.fixture(scope="module")
def town(cluster: Cluster, sandbox_image: str) -> Iterator[Town]:
    with cluster.namespace("network") as namespace:
        network = Town(cluster, namespace)
        if not (cluster.state / "run").is_dir():
            pytest.skip("this cluster is kind's: its addresses are others")
        for name in ("server", "free", "locked"):
            network.pod(name, sandbox_image, ["python3", "-c", SERVER])
        network.kubectl("expose", "pod", "server", "--name=web", "--port=80", "--target-port=8080")
        network.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=180s")
        yield network


@pytest.fixture
def unlocked(town: Town) -> Iterator[Town]:
    """The town without any policy, before and after."""
    yield town
    town.kubectl("delete", "networkpolicy", "--all")
    time.sleep(0.5)


def test_pod_reaches_services_by_name(town: Town) -> None:
    assert town.reaches("free", ("web", 80))
    assert town.reaches("free", ("kubernetes.default.svc.cluster.local", 443))
    assert town.is_kept_from("free", ("no-such-name", 80))


def test_pod_reaches_its_own_service(town: Town) -> None:
    service = town.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    assert town.reaches("server", (service, 80))


def test_pod_cannot_reach_the_host(town: Town, outside: str) -> None:
    assert town.is_kept_from("free", KUBELET)
    machine = subprocess.run(["ip", "route", "get", outside], capture_output=True, text=True, check=True).stdout
    assert town.is_kept_from("free", (machine.split("src ")[1].split()[0], 22))


def test_empty_egress_policy_blocks_all(unlocked: Town, outside: str) -> None:
    unlocked.policy("none", "locked", egress=[])
    server = (unlocked.address("server"), 8080)
    for address in (API_SERVICE, API_ADDRESS, server, (outside, 80), ("web", 80)):
        assert unlocked.is_kept_from("locked", address), address
        assert unlocked.reaches("free", address), address
    assert unlocked.run("locked", "echo", "hello").stdout == "hello\n"


def test_egress_policy_allows_targets(unlocked: Town, outside: str) -> None:
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    rules = [
        {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": "web"}]},
        {"to": [dns], "ports": [{"port": 53, "protocol": "UDP"}]},
        {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]},
    ]
    unlocked.policy("some", "locked", egress=rules)
    assert unlocked.reaches("locked", ("web", 80))
    assert unlocked.reaches("locked", (outside, 80))
    assert unlocked.is_kept_from("locked", API_SERVICE)
    assert unlocked.is_kept_from("locked", API_ADDRESS)
    assert unlocked.is_kept_from("locked", (unlocked.address("free"), 8080))


def test_link_local_bypass_is_blocked(town: Town) -> None:
    lines = town.run("server", "cat", "/proc/net/if_inet6").stdout.splitlines()
    digits = next(line.split()[0] for line in lines if line.endswith("eth0"))
    address = ":".join(digits[at : at + 4] for at in range(0, 32, 4))
    assert town.reaches("server", (f"{address}%eth0", 8080))
    assert town.is_kept_from("free", (f"{address}%eth0", 8080))


AT_ONCE = """
import socket, sys, time
began = time.monotonic()
while time.monotonic() - began < float(sys.argv[3]):
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.1).close()
    except OSError:
        continue
    print(f"reached after {time.monotonic() - began:.3f} s")
    break
"""


@pytest.mark.parametrize("away_s", [0, 20])
def test_new_pod_is_confined_at_once(unlocked: Town, sandbox_image: str, away_s: int) -> None:
    """Also where whoever watches the policies was cut off a moment ago, and tries again in half a minute only."""
    if away_s:
        assert unlocked.cluster.command("restart", "kube-apiserver", str(away_s)).returncode == 0
    unlocked.policy("none", "new", egress=[])
    server = unlocked.address("server")
    new = [f"new{i}" for i in range(5)]
    for name, label, seconds in [*((name, "new", "3") for name in new), ("control", "free", "60")]:
        unlocked.pod(name, sandbox_image, ["python3", "-c", AT_ONCE, server, "8080", seconds], label)
    names = [f"pod/{name}" for name in (*new, "control")]
    unlocked.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", *names, "--timeout=180s")
    logs = [unlocked.kubectl("logs", name) for name in (*new, "control")]
    unlocked.kubectl("delete", *names, "--grace-period=0", "--force")
    assert logs[:-1] == [""] * 5
    assert logs[-1].startswith("reached")


def test_pods_connect_on_forward_drop(town: Town, outside: str) -> None:
    policy = subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, text=True, check=True).stdout.split()[2]
    subprocess.run(["iptables", "-P", "FORWARD", "DROP"], check=True)
    try:
        assert town.reaches("free", (town.address("server"), 8080))
        assert town.reaches("free", (outside, 80))
    finally:
        subprocess.run(["iptables", "-P", "FORWARD", policy], check=True)
