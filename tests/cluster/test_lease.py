"""A run held by a Lease on a real cluster."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube import client
from swe_argo.steps.sandbox.kubernetes.lease import hold_lease, lease_name
from tests.cluster.accounts import RUNNER, account, reached
from tests.cluster.faults import Fault, Faults, Kind, Proxy
from tests.cluster.installed_chart import PATIENCE_S
from tests.cluster.real_cluster import Cluster
from tests.paths import ROOT
from tests.workflows.command import wait_for

pytestmark = pytest.mark.cluster

LONG_AGO = "2026-01-01T00:00:00.000000Z"
# Holds a run until it is killed; prints the lease when it has it.
HOLDER = """
import sys
from pathlib import Path
from swe_argo.steps.sandbox.kubernetes.lease import hold_lease
from tests.cluster.accounts import reached
with hold_lease(reached(Path(sys.argv[1]), sys.argv[2]), sys.argv[3]) as value:
    print(value, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("lease") as name:
        yield name


@pytest.fixture
def here(cluster: Cluster, namespace: str, tmp_path: Path) -> client.Cluster:
    """The cluster by an account that may do what a runner needs."""
    return reached(account(cluster, namespace, tmp_path, RUNNER), namespace)


@contextmanager
def holder(cluster: Cluster, namespace: str, run: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run; killed at the end."""
    words = [sys.executable, "-c", HOLDER, str(cluster.kubeconfig), namespace, run]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("swe-argo-")
            yield process
        finally:
            process.kill()


def change(cluster: Cluster, namespace: str, run: str, **parts: dict[str, Any]) -> None:
    """Change metadata and spec of the run's Lease."""
    words = ("patch", "lease", lease_name(run), "-n", namespace, "--type=merge", "-p", json.dumps(parts))
    cluster.kubectl(*words)


def lease(cluster: Cluster, namespace: str, run: str) -> dict[str, Any]:
    """The Lease of the run, empty where there is none."""
    text = cluster.kubectl("get", "lease", lease_name(run), "-n", namespace, "-o", "json", "--ignore-not-found")
    return dict(json.loads(text)) if text else {}


def owned(namespace: str, name: str, value: str, role: str = "solve") -> str:
    """A pod that belongs to a Lease and is never started, so that it takes nothing of the node."""
    lease, _, uid = value.partition("/")
    owner = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": lease, "uid": uid}
    meta = {"name": name, "namespace": namespace, "labels": {"swe-argo/role": role}, "ownerReferences": [owner]}
    container = {"name": "sandbox", "image": "localhost/none:1", "imagePullPolicy": "Never"}
    spec = {"containers": [container], "nodeSelector": {"planet": "mars"}, "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def pods(cluster: Cluster, namespace: str) -> list[str]:
    return cluster.kubectl("get", "pods", "-n", namespace, "-o", "name").split()


def test_lease_exists_while_it_is_held(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with hold_lease(here, "Nightly_1") as value:
        found_lease = lease(cluster, namespace, "Nightly_1")
        assert value == f"{found_lease['metadata']['name']}/{found_lease['metadata']['uid']}"
        assert found_lease["metadata"]["labels"]["swe-argo/run"] == "Nightly_1"
        assert found_lease["spec"]["leaseDurationSeconds"] == 60
        assert found_lease["spec"]["holderIdentity"].startswith(socket.gethostname())
    assert lease(cluster, namespace, "Nightly_1") == {}


def test_lease_is_renewed(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with hold_lease(here, "renewed", duration_s=2):
        first = lease(cluster, namespace, "renewed")["spec"]["renewTime"]
        wait_for(lambda: lease(cluster, namespace, "renewed")["spec"]["renewTime"] > first)


def test_owned_pods_go_with_the_lease(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with hold_lease(here, "owning") as value:
        cluster.kubectl("apply", "-f", "-", input=owned(namespace, "sb-owned", value))
        time.sleep(3)  # a wrong uid would have had it collected by now
        assert pods(cluster, namespace) == ["pod/sb-owned"]
    wait_for(lambda: not pods(cluster, namespace))


def test_second_runner_is_refused(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "taken") as first, pytest.raises(ConfigError) as refused, hold_lease(here, "taken"):
        pass
    assert refused.value.reason == (
        f"run_id: run 'taken' is in use by {socket.gethostname()}:{first.pid} in namespace {namespace}; "
        "wait for it, stop it, or use another run id"
    )


def test_dead_process_lease_is_taken(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "killed"):
        before = lease(cluster, namespace, "killed")["metadata"]["uid"]
    assert lease(cluster, namespace, "killed")["metadata"]["uid"] == before
    with hold_lease(here, "killed") as value:
        assert not value.endswith(before)


def test_expired_lease_is_taken(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "silent"):
        pass
    change(cluster, namespace, "silent", metadata={"annotations": {"swe-argo/process": "elsewhere:1:1"}})
    with pytest.raises(ConfigError), hold_lease(here, "silent"):
        pass
    change(cluster, namespace, "silent", spec={"renewTime": LONG_AGO})
    with hold_lease(here, "silent") as value:
        assert value


def test_deleted_lease_is_made_again(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()
    with hold_lease(here, "deleted", duration_s=2, on_new_lease=messages.put) as value:
        cluster.kubectl("delete", "lease", lease_name("deleted"), "-n", namespace)
        again = messages.get(timeout=PATIENCE_S)
        assert again != value
        assert again.endswith(lease(cluster, namespace, "deleted")["metadata"]["uid"])
    assert lease(cluster, namespace, "deleted") == {}


def test_lease_of_another_runner_is_kept(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with hold_lease(here, "lost") as value:
        found_lease = lease(cluster, namespace, "lost")
        del (
            found_lease["metadata"]["uid"],
            found_lease["metadata"]["resourceVersion"],
            found_lease["metadata"]["annotations"],
        )
        found_lease["spec"]["renewTime"] = LONG_AGO
        # Between its two acts, deletion and creation, the one that holds the run may make its own again.
        replace = ("replace", "--force", "-f", "-")
        wait_for(lambda: cluster.try_kubectl(*replace, input=json.dumps(found_lease)).returncode == 0)
        time.sleep(6)  # the next renewal would have been after five
    theirs = lease(cluster, namespace, "lost")
    assert theirs["metadata"]["uid"] != value.partition("/")[2]
    assert theirs["spec"]["renewTime"] == LONG_AGO
    cluster.kubectl("delete", "lease", lease_name("lost"), "-n", namespace)


def test_lease_survives_an_outage(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    faults = Faults(1, {Kind.OTHER: {Fault.REFUSE: 1.0}})
    faults.on = False
    with Proxy(here, faults) as proxy, hold_lease(proxy.cluster, "away", duration_s=2) as value:
        faults.on = True
        silent, before = "", None
        while silent != before:  # what was on its way when the outage began may yet be done
            time.sleep(2)
            silent, before = lease(cluster, namespace, "away")["spec"]["renewTime"], silent
        faults.on = False
        wait_for(lambda: lease(cluster, namespace, "away")["spec"]["renewTime"] > silent)
        assert value.endswith(lease(cluster, namespace, "away")["metadata"]["uid"])
    assert lease(cluster, namespace, "away") == {}


def test_missing_lease_right_is_reported(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    bare = reached(account(cluster, namespace, tmp_path, [("get", "leases", "coordination.k8s.io")]), namespace)
    with pytest.raises(ConfigError, match=r"may not create leases in namespace"), hold_lease(bare, "forbidden"):
        pass
