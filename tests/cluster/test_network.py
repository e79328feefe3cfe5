"""What sandboxes reach and what reaches them, each denial beside the same connection where the chart is not."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cluster.outside import SERVER
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import Manifest, Release, installed, plain_pod
from tests.workflows.command import wait_for

pytestmark = pytest.mark.cluster

METADATA = "169.254.169.254"
S3 = ("10.244.0.1", 9000)
"""On the node, at an address of its own."""
TABLE = "25416"
"""Of routes for what comes from pods, so that this machine keeps its own way to its metadata."""
LISTEN = """
import socket
server = socket.create_server(("", 8080))
while True:
    connection, _ = server.accept()
    connection.close()
"""
# All targets at once, as each denial is a timeout.
PROBE = r"""
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
NAME = b"\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00"
QUERY = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + NAME + b"\x00\x01\x00\x01"
def reached(target):
    kind, host, port = target
    try:
        if kind == "udp":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
                asker.settimeout(2)
                asker.sendto(QUERY, (host, port))
                return asker.recv(512)[:2] == QUERY[:2]
        if kind == "name":
            return bool(socket.getaddrinfo(host, port))
        socket.create_connection((host, port), 2).close()
    except OSError:
        return False
    return True
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(dict(zip(targets, pool.map(reached, targets.values())))))
"""

SOLVE, GRADE, OPEN = "sb-solve-none", "sb-grade-none", "sb-grade-open"
SANDBOXES = (SOLVE, GRADE, OPEN)
CLUSTER = ("API server, by its Service", "API server, by its address", "another pod", "instance metadata", "S3")
DNS = ("DNS over UDP", "DNS over TCP", "DNS pod")
GRANTED = (*DNS, "a host outside")
"""By a grading sandbox with network."""
TARGETS = (*CLUSTER, *GRANTED)
Targets = dict[str, tuple[str, str, int]]
"""By name: protocol, host, port."""


@dataclass(frozen=True)
class Side:
    """A namespace with one sandbox of each sort; each listens on 8080."""

    release: Release

    def reaches(self, pod: str, targets: Targets, must: Iterable[str] = ()) -> dict[str, bool]:
        """Whether each is reached; those that must be are tried up to four times, for who is busy answers late."""
        results = self._try(pod, targets)
        for _ in range(3):
            if missing := {name: targets[name] for name in must if not results[name]}:
                time.sleep(1)
                results |= self._try(pod, missing)
        return results

    def _try(self, pod: str, targets: Targets) -> dict[str, bool]:
        words = ["exec", pod, "--", "python3", "-c", PROBE, json.dumps(targets)]
        return dict(json.loads(self.release.kubectl(*words)))

    def address(self, pod: str) -> str:
        return self.release.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    def populate(self, *pods: Manifest) -> None:
        self.release.start(*pods)
        for pod in pods:
            serve = 'setsid python3 -c "$1" >/dev/null 2>&1 </dev/null &'
            self.release.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", serve, "sh", LISTEN)


@dataclass(frozen=True)
class Town:
    """Where the chart is, and its twin where it is not: the same pods, the same labels, no policies."""

    guarded: Side
    bare: Side
    targets: Targets


@pytest.fixture(scope="module")
def town(
    cluster: Cluster, sandbox_image: str, outside: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    with installed(cluster, tmp_path_factory.mktemp("network")) as release, cluster.namespace("chart-bare") as bare:
        boxes = [
            release.sandbox(sandbox_image, role=role, network=network)
            for role, network in (("solve", False), ("grade", False), ("grade", True))
        ]
        guarded, free = Side(release), Side(replace(release, namespace=bare))
        free.release.kubectl("create", "serviceaccount", "swe-argo-sandbox")
        guarded.populate(*boxes, plain_pod("neighbour", sandbox_image))
        for pod in boxes:
            del pod["metadata"]["ownerReferences"]  # which is in the other namespace
        free.populate(*boxes)
        neighbour = guarded.address("neighbour")
        with _metadata(outside, neighbour):
            yield Town(guarded, free, _targets(cluster, neighbour, outside))


def _targets(cluster: Cluster, neighbour: str, outside: str) -> Targets:
    def get(*words: str) -> str:
        return cluster.kubectl("get", *words)

    dns = get("service", "kube-dns", "-n", "kube-system", "-o", "jsonpath={.spec.clusterIP}")
    dns_pods = get("pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[*].status.podIP}")
    api = get("service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
    slices = json.loads(get("endpointslice", "kubernetes", "-n", "default", "-o", "json"))
    addresses = [
        ("tcp", api, 443),
        ("tcp", slices["endpoints"][0]["addresses"][0], slices["ports"][0]["port"]),
        ("tcp", neighbour, 8080),
        ("tcp", METADATA, 80),
        ("tcp", *S3),
        ("udp", dns, 53),
        ("tcp", dns, 53),
        ("udp", dns_pods.split()[0], 53),
        ("tcp", outside, 80),
    ]
    return dict(zip(TARGETS, addresses, strict=True))


@contextlib.contextmanager
def _metadata(outside: str, pod: str) -> Iterator[None]:
    """The host outside answers as instance metadata too, to whatever comes from pods."""

    def device(address: str) -> str:
        route = subprocess.run(["ip", "route", "get", address], capture_output=True, text=True, check=True).stdout
        return route.split(" dev ")[1].split()[0]

    def ip(command: str, *, check: bool = True) -> None:
        subprocess.run(["ip", *command.split()], check=check, capture_output=not check)

    host, bridge = device(outside), device(pod)
    with contextlib.ExitStack() as undo:
        ip(f"-n {host} address add {METADATA}/32 dev eth0")
        ip(f"route add {METADATA}/32 via {outside} dev {host} table {TABLE}")
        undo.callback(ip, f"route flush table {TABLE}", check=False)
        rule = f"iif {bridge} to {METADATA} lookup {TABLE}"
        ip(f"rule delete {rule}", check=False)  # a test run that was killed leaves it
        ip(f"rule add {rule}")
        undo.callback(ip, f"rule delete {rule}")
        Path(f"/proc/sys/net/ipv4/conf/{host}/rp_filter").write_text("2")
        words = ["ip", "netns", "exec", host, sys.executable, "-c", SERVER, METADATA, "80"]
        server = undo.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
        undo.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield


@pytest.fixture(scope="module")
def reached(town: Town) -> dict[str, dict[str, bool]]:
    """Per sandbox which targets it reaches."""
    must = {OPEN: GRANTED}
    return {pod: town.guarded.reaches(pod, town.targets, must.get(pod, ())) for pod in SANDBOXES}


@pytest.fixture(scope="module")
def control(town: Town) -> dict[str, dict[str, bool]]:
    """The same without the chart."""
    return {pod: town.bare.reaches(pod, town.targets, TARGETS) for pod in SANDBOXES}


Reached = dict[str, dict[str, bool]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pod", [SOLVE, GRADE])
def test_closed_sandbox_cannot_reach(reached: Reached, control: Reached, pod: str, target: str) -> None:
    assert not reached[pod][target]
    assert control[pod][target]


@pytest.mark.parametrize("target", CLUSTER)
def test_open_sandbox_cannot_reach(reached: Reached, control: Reached, target: str) -> None:
    assert not reached[OPEN][target]
    assert control[OPEN][target]


@pytest.mark.parametrize("target", GRANTED)
def test_open_sandbox_reaches(reached: Reached, target: str) -> None:
    assert reached[OPEN][target]


def test_names_resolve_only_with_network(town: Town) -> None:
    name = {"name": ("name", "kubernetes.default.svc.cluster.local", 443)}
    assert town.guarded.reaches(OPEN, name, name) == {"name": True}
    assert town.guarded.reaches(SOLVE, name) == {"name": False}


def test_sandboxes_are_unreachable(town: Town) -> None:
    def listeners(side: Side) -> Targets:
        return {pod: ("tcp", side.address(pod), 8080) for pod in SANDBOXES}

    for asker in ("neighbour", OPEN):
        targets = {pod: address for pod, address in listeners(town.guarded).items() if pod != asker}
        assert town.guarded.reaches(asker, targets) == dict.fromkeys(targets, False)
    assert town.guarded.reaches("neighbour", listeners(town.bare), SANDBOXES) == dict.fromkeys(SANDBOXES, True)


def test_exec_works_in_a_closed_sandbox(town: Town) -> None:
    assert town.guarded.release.kubectl("exec", SOLVE, "--", "cat", "/testbed/hello.txt") == "hello\n"


def test_sandbox_is_open_without_policy(town: Town) -> None:
    town.guarded.release.kubectl("delete", "networkpolicy", "--all")
    wait_for(lambda: town.guarded.reaches(SOLVE, town.targets) == dict.fromkeys(TARGETS, True))
