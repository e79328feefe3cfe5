"""Checks of a cluster before a run: example pods, quotas, nodes, network policies; and the proof of confinement."""

from __future__ import annotations

import os
import socket
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.checks.admission import (
    MOST_IMAGES,
    cut_off,
    example_images,
    is_confined,
    never_fits,
    pods_of,
    without_pod_name,
)
from swe_argo.steps.sandbox.kubernetes.checks.capacity import (
    check_fit,
    format_amount,
    pod_amounts,
    too_small,
)
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod, reaches_cluster, verify_confined
from swe_argo.steps.sandbox.protocol import SandboxNeeds

Table = dict[str, Any]

# -- the pods that are tried

OFFICIAL = [f"swebench/sweb.eval.x86_64.a_1776_a-{number}:latest" for number in range(500)]
OTHERS = ["namanjain12/orange3_final:0123abc", "ghcr.io/me/a:1", "ghcr.io/me/b:2", "ghcr.io/me/b@sha256:00"]


@pytest.mark.parametrize(
    ("images", "registry", "expected"),
    [
        ([*OFFICIAL, *OTHERS], None, [OFFICIAL[0], OTHERS[0], OTHERS[1], OTHERS[3]]),
        (["reg:5000/a", "reg:5000/b:latest", "reg:5000/c:1"], None, ["reg:5000/a", "reg:5000/c:1"]),
        (["docker.io/a/x:1", "ghcr.io/a/y:1"], "mirror.example/hub", ["docker.io/a/x:1"]),
    ],
    ids=["kinds", "tags", "rewritten"],
)
def test_example_images_differ_in_kind(images: list[str], registry: str | None, expected: list[str]) -> None:
    assert example_images(images, registry) == expected


def test_example_images_are_limited() -> None:
    assert len(example_images([f"host{number}.example/a:1" for number in range(500)], None)) == MOST_IMAGES


def trial_pods(solves: bool, *images: str) -> list[Table]:
    needs = SandboxNeeds(images=list(images), acts=False, solves=solves, grading_network=True, timeout_s=1800)
    return pods_of(SandboxSpec(backend="kubernetes"), needs, NamespaceSettings())


def test_each_role_is_tried_once() -> None:
    def describe(pod: Table) -> tuple[str, ...]:
        labels = pod["metadata"]["labels"]
        return labels["swe-argo/role"], labels["swe-argo/network"], pod["spec"]["containers"][0]["image"]

    solve, *grade = [("solve", "none", "a/x:1"), ("grade", "open", "a/x:1"), ("grade", "open", "b/x:1")]
    assert [describe(pod) for pod in trial_pods(True, "a/x:1", "b/x:1")] == [solve, *grade]
    assert [describe(pod) for pod in trial_pods(False, "a/x:1")] == grade[:1]


def test_trial_pod_has_policy_fields() -> None:
    [pod] = trial_pods(False, "a/x:1")
    assert pod["metadata"]["name"].startswith("sb-")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Lease"
    assert pod["spec"]["activeDeadlineSeconds"] > 1800


FULL = 'pods "sb-plan-grade-00" is forbidden: exceeded quota: q, requested: {}, used: {}, limited: {}'


@pytest.mark.parametrize(
    ("requested", "used", "limited", "expected"),
    [
        ("count/pods=1", "count/pods=11", "count/pods=11", False),
        ("limits.memory=8Gi,pods=1", "limits.memory=8Gi,pods=1", "limits.memory=10Gi,pods=1", False),
        ("count/pods=1", "count/pods=0", "count/pods=0", True),
        ("limits.cpu=4,pods=1", "limits.cpu=0,pods=0", "limits.cpu=3500m,pods=5", True),
    ],
)
def test_used_up_quota_is_not_too_small(requested: str, used: str, limited: str, expected: bool) -> None:
    assert bool(never_fits(FULL.format(requested, used, limited))) is expected


def test_trial_pod_name_is_not_shown() -> None:
    assert without_pod_name(FULL.format("a=1", "a=0", "a=0")).startswith("exceeded quota: q")
    assert without_pod_name('Pod "sb-plan-solve-01" is invalid: spec: no') == "spec: no"


# -- amounts


def test_container_amounts_add_up() -> None:
    first = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    containers = [{"resources": first}, {"resources": {"requests": {"memory": "512Mi"}}}, {}]
    pod = {"spec": {"overhead": {"cpu": "100m"}, "containers": containers}}
    assert pod_amounts(pod, "requests") == {"cpu": Decimal("0.6"), "memory": Decimal(3 << 29)}
    assert pod_amounts(pod, "limits") == {"cpu": Decimal("2.1"), "memory": Decimal(1 << 30)}
    assert pod_amounts({"spec": {}}, "requests") == {}


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("cpu", Decimal("0.5"), "500m"),
        ("limits.cpu", 64, "64"),
        ("memory", 3 << 29, "1.5Gi"),
        ("memory", 10240 << 30, "10240Gi"),
        ("memory", 16 << 20, "16Mi"),
        ("count/pods", 0, "0"),
    ],
)
def test_format_amount_uses_common_units(name: str, amount: int, expected: str) -> None:
    assert format_amount(name, Decimal(amount)) == expected


# -- quotas


def quota(hard: dict[str, str], **spec: Any) -> Table:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}


def quota_problem(*quotas: Table) -> str:
    amounts = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}
    spec = {"activeDeadlineSeconds": 60, "priorityClassName": "sandboxes", "containers": [{"resources": amounts}]}
    return too_small(list(quotas), {"metadata": {"name": "sb-x"}, "spec": spec}) or ""


@pytest.mark.parametrize(
    ("resource", "limit", "need"),
    [
        ("requests.cpu", "250m", "500m"),
        ("limits.memory", "4Gi", "8Gi"),
        ("count/pods", "0", "1"),
    ],
)
def test_quota_below_one_pod_is_named(resource: str, limit: str, need: str) -> None:
    problem = quota_problem(quota({"services": "0"}), quota({resource: limit}))
    assert problem == f"quota 'q' allows {resource} {limit} of {need} needed"


def test_quota_of_one_pod_is_enough() -> None:
    full = quota({"requests.cpu": "500m", "limits.cpu": "4", "limits.memory": "8Gi", "pods": "1"})
    full["status"] = {"used": {"pods": "1"}}
    assert not quota_problem(full)


def selector(scope: str, operator: str, *values: str) -> Table:
    expression = {"scopeName": scope, "operator": operator, **({"values": list(values)} if values else {})}
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["Terminating"]}, True),
        ({"scopes": ["NotTerminating"]}, False),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating", "BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        (selector("PriorityClass", "In", "sandboxes"), True),
        (selector("PriorityClass", "NotIn", "sandboxes"), False),
        (selector("PriorityClass", "DoesNotExist"), False),
        (selector("Terminating", "Exists"), True),
    ],
)
def test_quota_outside_scope_is_ignored(spec: Table, counts: bool) -> None:
    assert bool(quota_problem(quota({"pods": "0"}, **spec))) is counts


# -- nodes

AMD = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
ARM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
SMALL = {"cpu": "500m", "memory": "1Gi"}
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def node(name: str, labels: dict[str, str] = AMD, cpu: str = "4", memory: str = "16Gi", **spec: Any) -> Table:
    room = {"cpu": cpu, "memory": memory, "ephemeral-storage": "50Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": room}}


def pod(selector: Table = AMD, requests: Table = SMALL, limits: Table | None = None, **spec: Any) -> Table:
    container = {"resources": {"requests": requests, "limits": limits or {}}}
    return {"metadata": {"name": "sb-x"}, "spec": {"nodeSelector": selector, "containers": [container], **spec}}


def node_problem(nodes: list[Table], pod_manifest: Table, **spec: Any) -> str:
    """Return why no node can take the pod, or "" if one can."""
    try:
        check_fit(nodes, pod_manifest, SandboxSpec.model_validate({"backend": "kubernetes", **spec}))
    except ConfigError as refused:
        return refused.reason
    return ""


def of_role(role: str, **labels: str) -> Table:
    return pod({**AMD, "role": role, **labels})


SELECTS = {"kubernetes": {"node_selector": ["role=x"]}}
ROLES = [node("a", {**AMD, "role": "web"}), node("b", {**AMD, "role": "db"})]


@pytest.mark.parametrize(
    ("nodes", "pod_manifest", "spec", "expected"),
    [
        ([], pod(), {}, "the cluster has no nodes"),
        (
            ROLES,
            of_role("x"),
            SELECTS,
            "sandbox.kubernetes.node_selector: no node has the label role=x; role is db, web h",
        ),
        (
            [node("a")],
            of_role("x"),
            {},
            "swe-argo-sandbox: nodeSelector: no node has the label role=x; none has a label r",
        ),
        (ROLES, of_role("web", disk="ssd"), {}, "no node has the label disk=ssd"),
        ([node("a", {**AMD, "disk": "ssd"}), ROLES[0]], of_role("web", disk="ssd"), {}, "no node has all the labels"),
        (
            [node("a", ARM)],
            pod(),
            SELECTS,
            "sandbox.platform: no node has the label kubernetes.io/arch=amd64; kubernetes.",
        ),
        (
            [node("a"), node("b", cpu="8"), node("huge", ARM, cpu="128")],
            pod(requests={"cpu": "9"}),
            {},
            "swe-argo-sandbox: resources.requests.cpu: a sandbox requests 9 cpu, but the largest node that it may run "
            "on, b, has 8",
        ),
        (
            [node("a", cpu="8", memory="2Gi"), node("b", cpu="2", memory="64Gi")],
            pod(requests={"cpu": "8", "memory": "64Gi"}),
            {},
            "no node has everything that a sandbox requests: 8 cpu, 64Gi memory",
        ),
        ([node("a")], pod(limits={"cpu": "64"}), {"cpus": 64}, "sandbox.cpus: a sandbox requests 64 cpu"),
        ([node("a")], pod(requests={"cpu": "4"}, overhead={"cpu": "100m"}), {}, "requests 4100m cpu"),
        ([node("a", taints=[TAINT])], pod(), {}, "do not tolerate the taint dedicated=gpu:NoSchedule of the 1 nodes"),
    ],
)
def test_misfit_is_explained(nodes: list[Table], pod_manifest: Table, spec: Table, expected: str) -> None:
    assert expected in node_problem(nodes, pod_manifest, **spec)


@pytest.mark.parametrize(
    "pod_manifest",
    [pod(requests={"cpu": "4", "memory": "16Gi"}), pod(limits={"cpu": "64", "memory": "64Gi"})],
    ids=["whole node", "limit of the namespace"],
)
def test_pod_as_large_as_a_node_fits(pod_manifest: Table) -> None:
    assert not node_problem([node("a")], pod_manifest)


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "gpu"}, True),
        ({"key": "dedicated", "value": "other"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_pod_fits_if_it_tolerates_the_taint(toleration: dict[str, str], fits: bool) -> None:
    assert bool(node_problem([node("a", taints=[TAINT])], pod(tolerations=[toleration]))) is not fits


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "dedicated", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ],
)
def test_cordoned_node_still_counts(taint: dict[str, str]) -> None:
    assert not node_problem([node("a", taints=[taint])], pod())


# -- network policies

SOLVE = {"swe-argo/role": "solve", "swe-argo/network": "none"}


def policy(selector: Table, **spec: Any) -> Table:
    return {"metadata": {"name": "p"}, "spec": {"podSelector": selector, **spec}}


def expression(key: str, operator: str, *values: str) -> Table:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


SANDBOXES = expression("swe-argo/role", "Exists")


@pytest.mark.parametrize(
    ("selector", "confines"),
    [
        ({}, True),
        (SANDBOXES, True),
        (expression("swe-argo/role", "In", "grade", "solve"), True),
        (expression("swe-argo/role", "NotIn", "grade"), True),
        (expression("app", "DoesNotExist"), True),
        ({"matchLabels": {"app": "web"}}, False),
        ({"matchLabels": {"swe-argo/role": "solve", "app": "web"}}, False),
        (expression("swe-argo/role", "DoesNotExist"), False),
        ({"matchLabels": {"swe-argo/role": "solve"}, **expression("app", "Exists")}, False),
    ],
)
def test_egress_policy_confines_its_pods(selector: Table, confines: bool) -> None:
    assert is_confined([policy(selector, policyTypes=["Egress"])], SOLVE) is confines


def test_only_egress_policies_confine() -> None:
    assert not is_confined([policy({}, policyTypes=["Ingress"]), policy({}), policy({}, egress=[])], SOLVE)
    assert is_confined([policy({}, egress=[{"ports": [{"port": 443}]}])], SOLVE)  # egress rules imply the type


def test_policies_add_up() -> None:
    closed, opened = policy(SANDBOXES, policyTypes=["Egress"]), policy({}, policyTypes=["Egress"], egress=[{}])
    assert cut_off([closed], SOLVE)
    assert not cut_off([closed, opened], SOLVE)
    assert not cut_off([policy({"matchLabels": {"app": "web"}}, policyTypes=["Egress"])], SOLVE)


# -- the proof that a sandbox is confined, by a script that runs on this machine in place of a pod


class Here:
    """A pod that is this machine. ``port``: the API server's; ``programs``: the first folder of PATH."""

    def __init__(self, port: int, programs: Path) -> None:
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        self.last_lines: list[str] = []

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        result = subprocess.run(["sh", "-c", script], env=self._environment, stdout=subprocess.PIPE, check=False)
        self.last_lines.append(result.stdout.decode().splitlines()[-1])
        return result.returncode, result.stdout


def prove(here: Here, settle_s: float) -> None:
    verify_confined(cast("KubernetesPod", here), "evals", settle_s=settle_s)


def test_confinement_needs_two_failures(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        here = Here(silent.getsockname()[1], tmp_path)
        assert not reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=60)
    assert here.last_lines[-2:] == ["kept in"] * 2


def test_reachable_api_server_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Here(server.getsockname()[1], tmp_path)
        with pytest.raises(ConfigError, match="could reach the cluster"):
            prove(here, settle_s=0)
        assert reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=0)


@pytest.mark.parametrize("bash", ["exec sleep 60", "echo no such program; exit 127"])
def test_failed_program_proves_nothing(tmp_path: Path, bash: str) -> None:
    (tmp_path / "bash").write_text(f"#!/bin/sh\n{bash}\n")
    (tmp_path / "bash").chmod(0o755)
    with pytest.raises(
        ConfigError, match="the network confinement of sandboxes in namespace evals could not be tested"
    ):
        prove(Here(1, tmp_path), settle_s=0)
