"""Sandboxes that outlived their owners on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube import client
from swe_argo.steps.sandbox.kubernetes import orphans
from swe_argo.steps.sandbox.kubernetes.lease import lease_name
from tests.cluster.accounts import RUNNER, account, reached
from tests.cluster.real_cluster import Cluster
from tests.cluster.test_lease import LONG_AGO, change, holder, lease
from tests.workflows.command import swe_argo, wait_for

pytestmark = pytest.mark.cluster

LEASE = "coordination.k8s.io/v1"


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace("strays") as name:
        yield name


@pytest.fixture
def here(cluster: Cluster, namespace: str, tmp_path: Path) -> client.Cluster:
    """The cluster by a runner's account."""
    return reached(account(cluster, namespace, tmp_path, RUNNER), namespace)


def make(cluster: Cluster, namespace: str, name: str, owner: tuple[str, str, str] | None = None, **more: Any) -> None:
    """A sandbox that no node takes, or another pod where ``labels`` say so; ``owner`` is kind, name, uid."""
    labels = more.pop("labels", {"swe-argo/role": "grade"})
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels}
    if owner:
        kind, owner_name, uid = owner
        version = LEASE if kind == "Lease" else "v1"
        meta["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": owner_name, "uid": uid}]
    container = {"name": "sandbox", "image": "localhost/none:1", "imagePullPolicy": "Never"}
    spec = {"containers": [container], "nodeSelector": {"planet": "mars"}, "terminationGracePeriodSeconds": 0, **more}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(whole))


def list_orphaned(here: client.Cluster, grace_s: float = orphans.GRACE_S) -> list[str]:
    """The orphans, no pod being too new to be judged."""
    return list(orphans.find_orphans(here, grace_s=grace_s, new_s=-1))


def cleaned(here: client.Cluster, grace_s: float = orphans.GRACE_S) -> list[str]:
    return orphans.clean(here, orphans.find_orphans(here, grace_s=grace_s, new_s=-1))


def pods(cluster: Cluster, namespace: str) -> set[str]:
    names = cluster.kubectl("get", "pods", "-n", namespace, "-o", "name").split()
    return {name.removeprefix("pod/") for name in names}


def ended(cluster: Cluster, namespace: str, name: str) -> None:
    """The pod as one that has ended, as a kubelet would say."""
    patch = json.dumps({"status": {"phase": "Succeeded"}})
    cluster.kubectl("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def uid(cluster: Cluster, namespace: str, kind: str, name: str) -> str:
    return cluster.kubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")


def test_killed_runner_leaves_orphans(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "Killed") as process:
        name = lease_name("Killed")
        make(cluster, namespace, "sb-killed", ("Lease", name, uid(cluster, namespace, "lease", name)))
        assert list_orphaned(here) == []
        process.kill()
        process.wait()
        assert list_orphaned(here) == ["sb-killed", f"lease/{name}"]
    assert cleaned(here) == ["sb-killed", f"lease/{name}"]
    assert pods(cluster, namespace) == set()
    assert lease(cluster, namespace, "Killed") == {}
    assert list_orphaned(here) == []


def test_clean_lists_then_removes(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    def clean(*words: str) -> list[str]:
        # No folders or containers of others on this machine.
        alone = {"TMPDIR": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        result = swe_argo("clean", "--namespace", namespace, *words, env={**cluster.environment, **alone})
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    with holder(cluster, namespace, "left") as process:
        name = lease_name("left")
        make(cluster, namespace, "sb-left", ("Lease", name, uid(cluster, namespace, "lease", name)))
        assert clean() == ["no orphaned sandboxes"]
        process.kill()
        process.wait()
        line = f"kubernetes {namespace}: lease/{name}"
        assert clean() == [line, "1 found; remove them with: swe-argo clean --yes"]
        assert pods(cluster, namespace) == {"sb-left"}
        assert clean("--yes") == [line, "1 removed"]
        assert clean() == ["no orphaned sandboxes"]
    wait_for(lambda: not pods(cluster, namespace))


def test_remote_runner_has_more_time(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "far") as process:
        name = lease_name("far")
        make(cluster, namespace, "sb-far", ("Lease", name, uid(cluster, namespace, "lease", name)))
        process.kill()
        process.wait()
    change(cluster, namespace, "far", metadata={"annotations": {"swe-argo/process": "elsewhere:1:1"}})
    assert list_orphaned(here) == []
    change(cluster, namespace, "far", spec={"renewTime": LONG_AGO})
    assert list_orphaned(here) == ["sb-far", f"lease/{name}"]
    # The lease alone: Kubernetes removes what it owned.
    [lease_] = (item for key, item in orphans.find_orphans(here, new_s=-1).items() if key == f"lease/{name}")
    assert orphans.clean(here, {f"lease/{name}": lease_}) == [f"lease/{name}"]
    wait_for(lambda: not pods(cluster, namespace))


def test_returned_runner_keeps_sandboxes(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "back") as process:
        name = lease_name("back")
        make(cluster, namespace, "sb-back", ("Lease", name, uid(cluster, namespace, "lease", name)))
        process.kill()
        process.wait()
        orphaned = orphans.find_orphans(here, new_s=-1)
        now = {"metadata": {"annotations": {"swe-argo/process": "elsewhere:1:1"}}}
        cluster.kubectl("patch", "lease", name, "-n", namespace, "--type=merge", "-p", json.dumps(now))
        assert list(orphaned) == ["sb-back", f"lease/{name}"]
        assert orphans.clean(here, orphaned) == []
    assert pods(cluster, namespace) == {"sb-back"}


def test_ended_pod_orphans_its_sandbox(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    for step in ("step-on", "step-over"):
        make(cluster, namespace, step, labels={"app": "argo"})
        make(cluster, namespace, f"sb-{step}", ("Pod", step, uid(cluster, namespace, "pod", step)))
    assert list_orphaned(here) == []
    ended(cluster, namespace, "step-over")
    assert list_orphaned(here) == ["sb-step-over"]
    assert cleaned(here) == ["sb-step-over"]
    assert pods(cluster, namespace) == {"step-on", "step-over", "sb-step-on"}


def test_late_pods_are_orphaned(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    make(cluster, namespace, "step", labels={"app": "argo"})
    owner = ("Pod", "step", uid(cluster, namespace, "pod", "step"))
    make(cluster, namespace, "sb-late", owner, activeDeadlineSeconds=1)
    make(cluster, namespace, "sb-timely", owner, activeDeadlineSeconds=3600)
    make(cluster, namespace, "sb-nobodys")
    make(cluster, namespace, "web", labels={"app": "web"}, activeDeadlineSeconds=1)
    wait_for(lambda: list_orphaned(here) == ["sb-late"])
    assert list_orphaned(here, 0) == ["sb-late", "sb-nobodys"]
    assert cleaned(here, 0) == ["sb-late", "sb-nobodys"]
    assert pods(cluster, namespace) == {"step", "sb-timely", "web"}


def test_new_pod_is_never_touched(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    here = reached(account(cluster, namespace, tmp_path, RUNNER), namespace)
    make(cluster, namespace, "step", labels={"app": "argo"})
    make(cluster, namespace, "sb-new", ("Pod", "step", uid(cluster, namespace, "pod", "step")))
    ended(cluster, namespace, "step")
    assert orphans.find_orphans(here) == {}
    assert orphans.clean(here, {}) == []
    assert pods(cluster, namespace) == {"step", "sb-new"}


def test_sweep_run_ignores_owners(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    def labels(run: str, instance: str, attempt: int) -> dict[str, str]:
        return {
            "swe-argo/role": "solve",
            "swe-argo/run": run,
            "swe-argo/instance": instance,
            "swe-argo/attempt": str(attempt),
        }

    for name, of in (
        ("sb-one", labels("r1", "a__b-1", 1)),
        ("sb-two", labels("r1", "a__b-1", 2)),
        ("sb-three", labels("r1", "a__b-2", 1)),
        ("sb-other", labels("r2", "a__b-1", 1)),
        ("web", {"swe-argo/run": "r1"}),
    ):
        make(cluster, namespace, name, labels=of)
    assert orphans.remove_run_sandboxes(here, "r1", "a__b-1", 1) == ["sb-one"]
    assert pods(cluster, namespace) == {"sb-two", "sb-three", "sb-other", "web"}
    assert sorted(orphans.remove_run_sandboxes(here, "r1")) == ["sb-three", "sb-two"]
    assert pods(cluster, namespace) == {"sb-other", "web"}


def test_missing_list_right_is_reported(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    here = reached(account(cluster, namespace, tmp_path, []), namespace)
    with pytest.raises(ConfigError, match=r"may not list pods in namespace"):
        orphans.find_orphans(here)


def test_leases_are_found_by_their_pods(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    rules = [rule for rule in RUNNER if rule[1] != "leases"]
    here = reached(
        account(cluster, namespace, tmp_path, [*rules, ("get,delete", "leases", "coordination.k8s.io")]), namespace
    )
    with holder(cluster, namespace, "unseen"):
        name = lease_name("unseen")
        make(cluster, namespace, "sb-unseen", ("Lease", name, uid(cluster, namespace, "lease", name)))
    assert list_orphaned(here) == ["sb-unseen", f"lease/{name}"]
