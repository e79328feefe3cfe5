"""Which pods the admission policy refuses, each for its own reason: a good one with one thing changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.real import Cluster
from tests.cluster.release import Account, Manifest, Release, installed, plain_pod

pytestmark = pytest.mark.cluster

Change = Callable[[Manifest], object]


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(cluster, tmp_path_factory.mktemp("admission")) as made:
        yield made


@pytest.fixture(scope="module")
def strict(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A namespace that allows less."""
    flags = ["--set=grading.network=false", "--set=sandbox.imagePrefixes={localhost/,ghcr.io/mine/}"]
    more = ["--set=sandbox.maxDeadlineSeconds=1000", "--set=priorityClass.create=false"]
    with installed(cluster, tmp_path_factory.mktemp("strict"), *flags, *more) as made:
        yield made


@pytest.fixture(scope="module")
def lax(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A namespace that allows more."""
    flags = ["--set=sandbox.solveNetwork=true", "--set=sandbox.browsers=true"]
    with installed(cluster, tmp_path_factory.mktemp("lax"), *flags) as made:
        yield made


@pytest.fixture(scope="module")
def runner(release: Release) -> Account:
    return release.account("swe-argo-runner")


def offer(account: Account, pod: Manifest) -> str:
    """What the server says against a pod, empty if nothing."""
    done = account.tries("create", "--dry-run=server", "--validate=false", "-f", "-", input=pod)
    return done.stderr if done.returncode else ""


def box(pod: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def put(*path: str | int, to: object) -> Change:
    """The change that sets one field; ``None`` takes it away."""

    def change(pod: Manifest) -> None:
        place: Any = pod
        for step in path[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if to is None:
            del place[path[-1]]
        else:
            place[path[-1]] = to

    return change


def volume(**source: object) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "more", **source})


def inside(key: str, to: object) -> Change:
    return put("spec", "containers", 0, key, to=to)


def secure(key: str, to: object) -> Change:
    return put("spec", "containers", 0, "securityContext", key, to=to)


def label(key: str, to: str | None) -> Change:
    return put("metadata", "labels", f"swe-argo/{key}", to=to)


ANOTHER = {"name": "another", "image": "localhost/another:1"}
PROBE = {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "API_KEY"}}}
CONFIG = {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "other", "key": "a"}}}
DEPLOYMENT = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}]

CHANGES: dict[str, tuple[Change, str]] = {
    "name": (put("metadata", "name", to="solve-one"), "a sandbox's name begins with sb-"),
    "role": (label("role", "train"), "label swe-argo/role, solve or grade"),
    "run": (label("run", None), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "instance": (label("instance", None), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "attempt": (label("attempt", ""), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "network": (label("network", None), "label swe-argo/network, none or open"),
    "open solve": (label("network", "open"), "chart value sandbox.solveNetwork"),
    "no deadline": (put("spec", "activeDeadlineSeconds", to=None), "at most 21600 (chart value sandbox.maxDeadl"),
    "long deadline": (put("spec", "activeDeadlineSeconds", to=21601), "at most 21600 (chart value sandbox.maxDeadl"),
    "no owner": (put("metadata", "ownerReferences", to=None), "owned by the Pod or the Lease"),
    "other owner": (put("metadata", "ownerReferences", to=DEPLOYMENT), "owned by the Pod or the Lease"),
    "two containers": (lambda pod: pod["spec"]["containers"].append(ANOTHER), "one container"),
    "init container": (put("spec", "initContainers", to=[ANOTHER]), "neither init nor ephemeral containers"),
    "account": (put("spec", "serviceAccountName", to="swe-argo-runner"), "the service account swe-argo-sandbox"),
    "token": (put("spec", "automountServiceAccountToken", to=True), "automountServiceAccountToken is false"),
    "token by default": (put("spec", "automountServiceAccountToken", to=None), "automountServiceAccountToken is false"),
    "host network": (put("spec", "hostNetwork", to=True), "no hostNetwork, hostPID, hostIPC"),
    "host processes": (put("spec", "hostPID", to=True), "no hostNetwork, hostPID, hostIPC"),
    "host memory": (put("spec", "hostIPC", to=True), "no hostNetwork, hostPID, hostIPC"),
    "host port": (inside("ports", [{"containerPort": 80, "hostPort": 80}]), "no hostPort"),
    "host path": (volume(hostPath={"path": "/"}), "volumes are of type emptyDir"),
    "secret volume": (volume(secret={"secretName": "keys"}), "volumes are of type emptyDir"),
    "token volume": (
        volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
        "volumes are of type emptyDir",
    ),
    "claim": (volume(persistentVolumeClaim={"claimName": "c"}), "volumes are of type emptyDir"),
    "secret in a variable": (inside("env", [SECRET]), "nothing from secrets or config maps"),
    "config map in a variable": (inside("env", [CONFIG]), "nothing from secrets or config maps"),
    "all of a secret": (inside("envFrom", [{"secretRef": {"name": "keys"}}]), "nothing from secrets or config maps"),
    "privileged": (inside("securityContext", {"privileged": True}), "not privileged"),
    "escalation": (secure("allowPrivilegeEscalation", True), "allowPrivilegeEscalation false"),
    "escalation by default": (secure("allowPrivilegeEscalation", None), "allowPrivilegeEscalation false"),
    "capability": (secure("capabilities", {"add": ["SYS_ADMIN"]}), "chart value sandbox.browsers"),
    "seccomp": (secure("seccompProfile", {"type": "Unconfined"}), "seccomp profile RuntimeDefault"),
    "seccomp by default": (put("spec", "securityContext", "seccompProfile", to=None), "seccomp profile RuntimeDef"),
    "proc": (
        lambda pod: (put("spec", "hostUsers", to=False)(pod), secure("procMount", "Unmasked")(pod)),
        "the runtime's defaults",
    ),
    "sysctl": (
        put("spec", "securityContext", "sysctls", to=[{"name": "kernel.msgmax", "value": "1"}]),
        "the runtime's defaults",
    ),
    "apparmor": (secure("appArmorProfile", {"type": "Unconfined"}), "the runtime's defaults"),
    "apparmor of all": (
        put("spec", "securityContext", "appArmorProfile", to={"type": "Unconfined"}),
        "the runtime's defaults",
    ),
    "apparmor by its old name": (
        put("metadata", "annotations", to={"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}),
        "the runtime's defaults",
    ),
    "selinux": (secure("seLinuxOptions", {"type": "spc_t"}), "the runtime's defaults"),
    "selinux of all": (
        put("spec", "securityContext", "seLinuxOptions", to={"type": "spc_t"}),
        "the runtime's defaults",
    ),
    "ready probe": (inside("readinessProbe", PROBE), "neither probes nor lifecycle hooks"),
    "start probe": (inside("startupProbe", PROBE), "neither probes nor lifecycle hooks"),
    "probe": (inside("livenessProbe", PROBE), "neither probes nor lifecycle hooks"),
    "hook": (inside("lifecycle", {"postStart": PROBE}), "neither probes nor lifecycle hooks"),
    "priority": (put("spec", "priorityClassName", to="system-node-critical"), "the priority class swe-argo-sandbox-"),
}


@pytest.mark.parametrize(("role", "network"), [("solve", False), ("grade", False), ("grade", True)])
def test_what_the_backend_makes_is_let_in(release: Release, runner: Account, role: str, network: bool) -> None:
    assert offer(runner, release.sandbox("swebench/any:latest", role=role, network=network)) == ""


@pytest.mark.parametrize("what", CHANGES)
def test_the_same_with_one_thing_changed_is_refused_with_its_reason(
    release: Release, runner: Account, what: str
) -> None:
    pod = release.sandbox("localhost/one:1")
    change, reason = CHANGES[what]
    change(pod)
    said = offer(runner, pod)
    assert f"ValidatingAdmissionPolicy 'swe-argo-sandboxes-{release.namespace}'" in said
    assert reason in said


def test_a_pod_owns_sandboxes_as_a_lease_does(release: Release, runner: Account) -> None:
    pod = release.sandbox("localhost/one:1")
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "step", "uid": "u"}]
    assert offer(runner, pod) == ""


def test_plain_and_downward_variables_are_let_in(release: Release, runner: Account) -> None:
    pod = release.sandbox("localhost/one:1")
    own = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    box(pod)["env"] = [{"name": "LANG", "value": "C"}, own]
    assert offer(runner, pod) == ""


def administrator(release: Release) -> Account:
    return Account(release.cluster, release.namespace, release.cluster.kubeconfig)


@pytest.mark.parametrize("what", ["host path", "token", "no deadline"])
def test_an_administrator_makes_no_loose_sandbox_either(release: Release, what: str) -> None:
    pod = release.sandbox("localhost/one:1")
    change, reason = CHANGES[what]
    change(pod)
    assert reason in offer(administrator(release), pod)


def test_whatever_is_named_like_a_sandbox_must_be_one(release: Release) -> None:
    assert "label swe-argo/role" in offer(administrator(release), plain_pod("sb-mine", "localhost/one:1"))


def test_other_pods_are_nobodys_business(release: Release) -> None:
    pod = plain_pod("mine", "localhost/one:1")
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert offer(administrator(release), pod) == ""


def test_other_namespaces_are_nobodys_business(cluster: Cluster, release: Release) -> None:
    with cluster.namespace("chart-other") as other:
        elsewhere = replace(administrator(release), namespace=other)
        assert offer(elsewhere, plain_pod("sb-mine", "localhost/one:1", **{"swe-argo/role": "solve"})) == ""


def test_a_sandbox_stays_a_sandbox(release: Release, sandbox_image: str) -> None:
    """Labels are what policies select by: without them, it would have the network of any pod."""
    pod = release.sandbox(sandbox_image, role="grade")
    release.start(pod)
    admin, name = administrator(release), pod["metadata"]["name"]
    assert "label swe-argo/role" in admin.refused("label", "pod", name, "swe-argo/role-")
    debug = {"spec": {"ephemeralContainers": [{**ANOTHER, "securityContext": {"privileged": True}}]}}
    patch = ["patch", "pod", name, "--subresource=ephemeralcontainers", "-p", json.dumps(debug)]
    assert "neither init nor ephemeral containers" in admin.refused(*patch)
    admin.may("annotate", "pod", name, "note=any")
    admin.may("delete", "pod", name, "--timeout=60s")


def test_a_namespace_that_allows_less_says_which_value_does(strict: Release) -> None:
    runner = strict.account("swe-argo-runner")
    assert offer(runner, strict.sandbox("localhost/one:1", role="grade")) == ""
    assert offer(runner, strict.sandbox("ghcr.io/mine/one:1")) == ""
    said = offer(runner, strict.sandbox("ghcr.io/mine-not/one:1"))
    assert "image ghcr.io/mine-not/one:1 begins with none of localhost/, ghcr.io/mine/" in said
    assert "chart value sandbox.imagePrefixes" in said
    assert "chart value grading.network" in offer(runner, strict.sandbox("localhost/one:1", role="grade", network=True))
    pod = strict.sandbox("localhost/one:1")
    pod["spec"]["activeDeadlineSeconds"] = 1001
    assert "at most 1000" in offer(runner, pod)
    pod = strict.sandbox("localhost/one:1")
    pod["spec"]["priorityClassName"] = "system-node-critical"
    assert "no priority class of the system" in offer(runner, pod)


def test_a_namespace_that_allows_more_lets_more_in(lax: Release) -> None:
    runner = lax.account("swe-argo-runner")
    assert offer(runner, lax.sandbox("localhost/one:1", network=True, browsers=True)) == ""
    pod = lax.sandbox("localhost/one:1", browsers=True)
    box(pod)["securityContext"]["capabilities"]["add"].append("NET_ADMIN")
    assert "no capability but SYS_ADMIN" in offer(runner, pod)


def test_where_a_runtime_class_is_set_no_sandbox_runs_without(cluster: Cluster, tmp_path: Path) -> None:
    with installed(cluster, tmp_path, "--set=sandbox.runtimeClassName=gvisor") as caged:
        pod = caged.sandbox("localhost/one:1")
        assert pod["spec"].pop("runtimeClassName") == "gvisor"
        assert "chart value sandbox.runtimeClassName" in offer(administrator(caged), pod)
