"""Sandboxes that outlived their owners on a real cluster."""

from __future__ import annotations

import json
import time
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
        kind, whose, uid = owner
        version = LEASE if kind == "Lease" else "v1"
        meta["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": whose, "uid": uid}]
    container = {"name": "sandbox", "image": "localhost/none:1", "imagePullPolicy": "Never"}
    spec = {"containers": [container], "nodeSelector": {"planet": "mars"}, "terminationGracePeriodSeconds": 0, **more}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(whole))


def found(here: client.Cluster, grace_s: float = orphans.GRACE_S) -> list[str]:
    """The orphans, no pod being too new to be judged."""
    return orphans.find_orphans(here, grace_s=grace_s, new_s=-1)


def cleaned(here: client.Cluster, names: list[str], grace_s: float = orphans.GRACE_S) -> list[str]:
    return orphans.clean(here, names, grace_s=grace_s, new_s=-1)


def pods(cluster: Cluster, namespace: str) -> set[str]:
    names = cluster.kubectl("get", "pods", "-n", namespace, "-o", "name").split()
    return {name.removeprefix("pod/") for name in names}


def ended(cluster: Cluster, namespace: str, name: str) -> None:
    """The pod as one that has ended, as a kubelet would say."""
    patch = json.dumps({"status": {"phase": "Succeeded"}})
    cluster.kubectl("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def uid(cluster: Cluster, namespace: str, kind: str, name: str) -> str:
    return cluster.kubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")


def test_what_a_killed_runner_left_is_found_and_removed(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
    with holder(cluster, namespace, "Killed") as process:
        name = lease_name("Killed")
        make(cluster, namespace, "sb-killed", ("Lease", name, uid(cluster, namespace, "lease", name)))
        assert found(here) == []
        process.kill()
        process.wait()
        assert found(here) == ["sb-killed", f"lease/{name}"]
    assert cleaned(here, found(here)) == ["sb-killed", f"lease/{name}"]
    assert pods(cluster, namespace) == set()
    assert lease(cluster, namespace, "Killed") == {}
    assert found(here) == []


def test_swe_argo_clean_lists_them_and_removes_them_when_told_to(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    def clean(*words: str) -> list[str]:
        # No folders or containers of others on this machine.
        alone = {"TMPDIR": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        done = swe_argo("clean", "--namespace", namespace, *words, env={**cluster.environment, **alone})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with holder(cluster, namespace, "left") as process:
        name = lease_name("left")
        make(cluster, namespace, "sb-left", ("Lease", name, uid(cluster, namespace, "lease", name)))
        assert clean() == ["no orphaned sandboxes"]
        process.kill()
        process.wait()
        told = f"kubernetes {namespace}: lease/{name}"
        assert clean() == [told, "1 found; remove them with: swe-argo clean --yes"]
        assert pods(cluster, namespace) == {"sb-left"}
        assert clean("--yes") == [told, "1 removed"]
        assert clean() == ["no orphaned sandboxes"]
    wait_for(lambda: not pods(cluster, namespace))


def test_a_runner_of_another_machine_is_given_twice_its_time(
    cluster: Cluster, namespace: str, here: client.Cluster
) -> None:
    with holder(cluster, namespace, "far") as process:
        name = lease_name("far")
        make(cluster, namespace, "sb-far", ("Lease", name, uid(cluster, namespace, "lease", name)))
        process.kill()
        process.wait()
    change(cluster, namespace, "far", metadata={"annotations": {"swe-argo/process": "elsewhere:1:1"}})
    assert found(here) == []
    change(cluster, namespace, "far", spec={"renewTime": LONG_AGO})
    assert found(here) == ["sb-far", f"lease/{name}"]
    # The lease alone: Kubernetes removes what it owned.
    assert cleaned(here, [f"lease/{name}"]) == [f"lease/{name}"]
    wait_for(lambda: not pods(cluster, namespace))


def test_a_runner_that_came_back_in_time_keeps_its_sandboxes(
    cluster: Cluster, namespace: str, here: client.Cluster
) -> None:
    with holder(cluster, namespace, "back") as process:
        name = lease_name("back")
        make(cluster, namespace, "sb-back", ("Lease", name, uid(cluster, namespace, "lease", name)))
        process.kill()
        process.wait()
        seen = found(here)
        now = {"metadata": {"annotations": {"swe-argo/process": "elsewhere:1:1"}}}
        cluster.kubectl("patch", "lease", name, "-n", namespace, "--type=merge", "-p", json.dumps(now))
        assert seen == ["sb-back", f"lease/{name}"]
        assert cleaned(here, seen) == []
    assert pods(cluster, namespace) == {"sb-back"}


def test_sandboxes_go_when_the_pod_that_owns_them_has_ended(
    cluster: Cluster, namespace: str, here: client.Cluster
) -> None:
    for step in ("step-on", "step-over"):
        make(cluster, namespace, step, labels={"app": "argo"})
        make(cluster, namespace, f"sb-{step}", ("Pod", step, uid(cluster, namespace, "pod", step)))
    assert found(here) == []
    ended(cluster, namespace, "step-over")
    assert found(here) == ["sb-step-over"]
    assert cleaned(here, found(here)) == ["sb-step-over"]
    assert pods(cluster, namespace) == {"step-on", "step-over", "sb-step-on"}


def test_pods_past_their_deadline_and_old_ones_of_nobody_are_strays(
    cluster: Cluster, namespace: str, here: client.Cluster
) -> None:
    make(cluster, namespace, "step", labels={"app": "argo"})
    owner = ("Pod", "step", uid(cluster, namespace, "pod", "step"))
    make(cluster, namespace, "sb-late", owner, activeDeadlineSeconds=1)
    make(cluster, namespace, "sb-timely", owner, activeDeadlineSeconds=3600)
    make(cluster, namespace, "sb-nobodys")
    make(cluster, namespace, "web", labels={"app": "web"}, activeDeadlineSeconds=1)
    wait_for(lambda: found(here) == ["sb-late"])
    assert found(here, 0) == ["sb-late", "sb-nobodys"]
    assert cleaned(here, ["sb-late", "sb-nobodys", "sb-timely", "web", "sb-none"], 0) == [
        "sb-late",
        "sb-nobodys",
        "sb-none",
    ]
    assert pods(cluster, namespace) == {"step", "sb-timely", "web"}


def test_pods_that_ended_are_strays_when_their_owner_had_time_to_look(
    cluster: Cluster, namespace: str, here: client.Cluster
) -> None:
    make(cluster, namespace, "step", labels={"app": "argo"})
    make(cluster, namespace, "sb-ended", ("Pod", "step", uid(cluster, namespace, "pod", "step")))
    ended(cluster, namespace, "sb-ended")
    assert found(here) == []
    time.sleep(1.5)
    assert found(here, 0) == ["sb-ended"]


def test_a_new_pod_is_never_touched(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    here = reached(account(cluster, namespace, tmp_path, RUNNER), namespace)
    make(cluster, namespace, "step", labels={"app": "argo"})
    make(cluster, namespace, "sb-new", ("Pod", "step", uid(cluster, namespace, "pod", "step")))
    ended(cluster, namespace, "step")
    assert orphans.find_orphans(here) == []
    assert orphans.clean(here, ["sb-new"]) == []
    assert pods(cluster, namespace) == {"step", "sb-new"}


def test_a_run_or_a_unit_of_it_is_swept_whoever_owns_it(cluster: Cluster, namespace: str, here: client.Cluster) -> None:
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
    assert orphans.sweep_run(here, "r1", "a__b-1", 1) == ["sb-one"]
    assert pods(cluster, namespace) == {"sb-two", "sb-three", "sb-other", "web"}
    assert sorted(orphans.sweep_run(here, "r1")) == ["sb-three", "sb-two"]
    assert pods(cluster, namespace) == {"sb-other", "web"}


def test_without_the_right_to_list_it_says_so(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    here = reached(account(cluster, namespace, tmp_path, []), namespace)
    with pytest.raises(ConfigError, match=r"may not list pods in namespace"):
        orphans.find_orphans(here)


def test_without_the_right_to_list_leases_those_of_pods_are_found(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    rules = [rule for rule in RUNNER if rule[1] != "leases"]
    here = reached(
        account(cluster, namespace, tmp_path, [*rules, ("get,delete", "leases", "coordination.k8s.io")]), namespace
    )
    with holder(cluster, namespace, "unseen"):
        name = lease_name("unseen")
        make(cluster, namespace, "sb-unseen", ("Lease", name, uid(cluster, namespace, "lease", name)))
    assert found(here) == ["sb-unseen", f"lease/{name}"]
