"""Pods that are sandboxes but for one thing, and why each is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.kubernetes.pod_spec import add_agent_files
from swe_argo.steps.sandbox.protocol import BundleMount
from tests.cluster.release import Manifest

Change = Callable[[Manifest], object]


def box(pod: Manifest) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def edit(*path: str | int, to: object) -> Change:
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


def meta(*path: str | int, to: object) -> Change:
    return edit("metadata", *path, to=to)


def spec(*path: str | int, to: object) -> Change:
    return edit("spec", *path, to=to)


def container(*path: str | int, to: object) -> Change:
    return spec("containers", 0, *path, to=to)


def inside(key: str, to: object) -> Change:
    return container(key, to=to)


def secure(key: str, to: object) -> Change:
    return container("securityContext", key, to=to)


def limit(resource: str, to: object) -> Change:
    return container("resources", "limits", resource, to=to)


def both(one: Change, other: Change) -> Change:
    return lambda pod: (one(pod), other(pod))


def label(key: str, to: str | None) -> Change:
    return edit("metadata", "labels", f"swe-argo/{key}", to=to)


def tolerate(**toleration: str) -> Change:
    return lambda pod: pod["spec"].setdefault("tolerations", []).append(toleration)


PINNED = f"localhost/agent@sha256:{'a' * 64}"


def copier(**wrong: object) -> Change:
    """An agent's files by an init container, of which something is wrong."""

    def change(pod: Manifest) -> None:
        changed = add_agent_files(pod, BundleMount("", None, PINNED), NamespaceSettings(), "copy")
        changed["spec"]["initContainers"][0].update(wrong)
        pod.update(changed)

    return change


def agent_volume(**wrong: object) -> Change:
    """The same by a volume of their image."""

    def change(pod: Manifest) -> None:
        pod.update(add_agent_files(pod, BundleMount("", None, PINNED), NamespaceSettings(), "image-volume"))
        pod["spec"]["volumes"][-1]["image"].update(wrong)

    return change


COPIERS: dict[str, tuple[dict[str, object], str]] = {
    "another command": ({"command": ["/bin/sh"]}, "copies an agent's files into their volume, and nothing else"),
    "another mount": (
        {"volumeMounts": [{"name": "jobs", "mountPath": "/.swe-argo/files"}]},
        "copies an agent's files into their volume, and nothing else",
    ),
    "arguments": ({"args": ["x"]}, "init container of a sandbox has fields that the project does not set"),
    "a restart": ({"restartPolicy": "Always"}, "init container of a sandbox has fields that the project does not set"),
    "capabilities": (
        {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_ADMIN"]}}},
        "init container of a sandbox has no capabilities",
    ),
    "more memory": ({"resources": {"limits": {"memory": "1Ti"}}}, "asks for what the sandbox asks for"),
    "a tag": ({"image": "localhost/agent:1"}, "an image that is named by its digest"),
}
ANOTHER = {"name": "another", "image": "localhost/another:1"}
PROBE = {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "API_KEY"}}}
CONFIG = {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "other", "key": "a"}}}
DEPLOYMENT = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}]

MORE_OF_THE_CONTAINER: dict[str, object] = {
    "env": [{"name": "LANG", "value": "C"}],
    "ports": [{"containerPort": 80}],
    "stdin": True,
    "tty": True,
}
MORE_OF_THE_POD: dict[str, object] = {
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["elsewhere.example"]}],
    "shareProcessNamespace": True,
    "hostname": "other",
    "affinity": {"podAffinity": {}},
    "os": {"name": "linux"},
}

REFUSED: dict[str, dict[str, Change]] = {
    "a sandbox's name begins with sb-": {"name": meta("name", to="solve-one")},
    "label swe-argo/role, solve or grade": {"role": label("role", "train")},
    "labels swe-argo/run, swe-argo/instance and swe-argo/attempt": {
        "run": label("run", None),
        "instance": label("instance", None),
        "attempt": label("attempt", ""),
    },
    "label swe-argo/network, none or open": {"network": label("network", None)},
    "chart value sandbox.solveNetwork": {"open solve": label("network", "open")},
    "at most 57600 (chart value sandbox.maxDeadl": {
        "no deadline": spec("activeDeadlineSeconds", to=None),
        "long deadline": spec("activeDeadlineSeconds", to=57601),
    },
    "owned by the Pod or the": {
        "an owner of another API": meta("ownerReferences", 0, "apiVersion", to="v1"),
        "no owner": meta("ownerReferences", to=None),
        "other owner": meta("ownerReferences", to=DEPLOYMENT),
    },
    "nothing else: no c": {
        "an owner that it holds": meta("ownerReferences", 0, "blockOwnerDeletion", to=True),
        "an owner that controls it": meta("ownerReferences", 0, "controller", to=True),
    },
    "labels that the project does not set: swe-argo/step": {"label": label("step", "solve")},
    "labels that the project does not set: workflows.argoproj.io/workflow": {
        "label of Argo's": meta("labels", "workflows.argoproj.io/workflow", to="run")
    },
    "annotations that the project does not set: note": {"annotation": meta("annotations", "note", to="any")},
    "a sandbox has no finalizers": {"finalizer": meta("finalizers", to=["example.org/stay"])},
    "does not set: generateName": {"name of the server's": meta("generateName", to="sb-")},
    "the scheduler puts it: no nodeName": {"node": spec("nodeName", to="other")},
    "the default scheduler": {"scheduler": spec("schedulerName", to="mine")},
    "chart value sandbox.tolerations": {
        "toleration": tolerate(key="dedicated"),
        "toleration of everything": tolerate(operator="Exists"),
        "toleration for longer": tolerate(key="role", value="cpu-sandbox", effect="NoExecute"),
        "toleration of a cordon": tolerate(
            key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule"
        ),
    },
    "chart value sandbox.imagePullSecrets": {"pull secret": spec("imagePullSecrets", to=[{"name": "keys"}])},
    "limits of cpu, ephemeral-storage, memory (chart value sandbox.resources.": {"no limits": inside("resources", {})},
    "and for nothing else": {
        "devices": limit("example.org/gpu", to="1"),
        "claimed devices": both(
            spec("resourceClaims", to=[{"name": "a", "resourceClaimName": "a"}]),
            container("resources", "claims", to=[{"name": "a"}]),
        ),
    },
    "restartPolicy Never": {
        "restarts": spec("restartPolicy", to="Always"),
        "restarts after failures": spec("restartPolicy", to="OnFailure"),
    },
    "terminationGracePeriodSeconds is 1": {"grace": spec("terminationGracePeriodSeconds", to=3600)},
    "enableServiceLinks is false": {"links": spec("enableServiceLinks", to=None)},
    "a sandbox without network resolves no names": {
        "names of the cluster": both(spec("dnsPolicy", to="ClusterFirst"), spec("dnsConfig", to=None)),
        "names of the node": both(spec("dnsPolicy", to="Default"), spec("dnsConfig", to=None)),
        "another resolver": spec("dnsConfig", "nameservers", to=["10.9.8.7"]),
        "search domains": spec("dnsConfig", "searches", to=["svc"]),
    },
    "drops the capability NET_RAW": {"raw packets": secure("capabilities", None)},
    "each has a sizeLimit": {"disk without end": spec("volumes", to=[{"name": "jobs", "emptyDir": {}}])},
    "each has a sizeLimit within sandbox.maxResources, and no medium": {
        "memory as disk": spec("volumes", 0, "emptyDir", to={"medium": "Memory", "sizeLimit": "1Gi"})
    },
    "mounts its volumes whole": {"a folder of a volume": container("volumeMounts", 0, "subPath", to="a")},
    "no hostPort, hostIP": {
        "address of the node": inside("ports", [{"containerPort": 80, "hostIP": "127.0.0.1"}]),
        "host port": inside("ports", [{"containerPort": 80, "hostPort": 80}]),
    },
    "one container": {"two containers": lambda pod: pod["spec"]["containers"].append(ANOTHER)},
    "no init container but agent-files": {
        "init container": spec("initContainers", to=[ANOTHER]),
        "two copiers": lambda pod: (copier()(pod), pod["spec"]["initContainers"].append(ANOTHER)),
    },
    "named by its digest": {"volume of an image by its tag": agent_volume(reference="localhost/agent:1")},
    "volumes are of type emptyDir": {
        "volume of an image with another name": volume(image={"reference": PINNED}),
        "host path": volume(hostPath={"path": "/"}),
        "secret volume": volume(secret={"secretName": "keys"}),
        "token volume": volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
        "claim": volume(persistentVolumeClaim={"claimName": "c"}),
    },
    "their mount is readOnly": {
        "agent's files to write": lambda pod: (agent_volume()(pod), box(pod)["volumeMounts"][-1].update(readOnly=False))
    },
    "the service account swe-argo-sandbox": {"account": spec("serviceAccountName", to="swe-argo-runner")},
    "automountServiceAccountToken is false": {
        "token": spec("automountServiceAccountToken", to=True),
        "token by default": spec("automountServiceAccountToken", to=None),
    },
    "no hostNetwork, hostPID, hostIPC": {
        "host network": spec("hostNetwork", to=True),
        "host processes": spec("hostPID", to=True),
        "host memory": spec("hostIPC", to=True),
    },
    "nothing from secrets or config maps": {
        "secret in a variable": inside("env", [SECRET]),
        "config map in a variable": inside("env", [CONFIG]),
        "all of a secret": inside("envFrom", [{"secretRef": {"name": "keys"}}]),
    },
    "not privileged": {"privileged": inside("securityContext", {"privileged": True})},
    "allowPrivilegeEscalation false": {
        "escalation": secure("allowPrivilegeEscalation", True),
        "escalation by default": secure("allowPrivilegeEscalation", None),
    },
    "chart value sandbox.browsers": {"capability": secure("capabilities", {"add": ["SYS_ADMIN"]})},
    "seccomp profile RuntimeDefault": {
        "seccomp": secure("seccompProfile", {"type": "Unconfined"}),
        "seccomp by default": spec("securityContext", "seccompProfile", to=None),
    },
    "the runtime's defaults": {
        "proc": both(spec("hostUsers", to=False), secure("procMount", "Unmasked")),
        "sysctl": spec("securityContext", "sysctls", to=[{"name": "kernel.msgmax", "value": "1"}]),
        "apparmor": secure("appArmorProfile", {"type": "Unconfined"}),
        "apparmor of all": spec("securityContext", "appArmorProfile", to={"type": "Unconfined"}),
        "apparmor by its old name": meta(
            "annotations", to={"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}
        ),
        "selinux": secure("seLinuxOptions", {"type": "spc_t"}),
        "selinux of all": spec("securityContext", "seLinuxOptions", to={"type": "spc_t"}),
    },
    "neither probes nor lifecycle hooks": {
        "ready probe": inside("readinessProbe", PROBE),
        "start probe": inside("startupProbe", PROBE),
        "probe": inside("livenessProbe", PROBE),
        "hook": inside("lifecycle", {"postStart": PROBE}),
    },
    "the priority class swe-argo-sandbox-": {
        "priority": spec("priorityClassName", to="system-node-critical"),
        "no priority": spec("priorityClassName", to=None),
    },
    "chooses no nodes by other labels": {
        "control plane": spec("nodeSelector", "node-role.kubernetes.io/control-plane", to=""),
        "one node": spec("nodeSelector", "kubernetes.io/hostname", to="node0"),
    },
}
"""Reason of the refusal -> what is changed of a good pod, by name."""

CHANGES: dict[str, tuple[Change, str]] = {
    **{name: (change, reason) for reason, changes in REFUSED.items() for name, change in changes.items()},
    **{
        f"no limit of {name}": (limit(name, to=None), "a sandbox has limits")
        for name in ("cpu", "memory", "ephemeral-storage")
    },
    **{
        f"the container's {name}": (inside(name, value), f"container has fields that the project does not set: {name}")
        for name, value in MORE_OF_THE_CONTAINER.items()
    },
    **{
        f"the pod's {name}": (spec(name, to=value), f"pod has fields that the project does not set: {name}")
        for name, value in MORE_OF_THE_POD.items()
    },
    **{
        f"the container's {name}": (
            secure(name, value),
            f"a securityContext with fields that the project does not set: {name}",
        )
        for name, value in {"readOnlyRootFilesystem": True, "runAsUser": 1, "privileged": False}.items()
    },
    **{
        f"the pod's {name}": (
            spec("securityContext", name, to=value),
            f"pod has a securityContext with fields that the project does not set: {name}",
        )
        for name, value in {"fsGroup": 1, "supplementalGroups": [0], "runAsNonRoot": False}.items()
    },
    **{f"copier with {variant}": (copier(**wrong), reason) for variant, (wrong, reason) in COPIERS.items()},
    **{
        f"{amount} of {name}": (limit(name, to=amount), f"of {name} (chart value sandbox.maxResources)")
        for name, amount in (("cpu", "1k"), ("cpu", "32001m"), ("memory", "10Ti"), ("ephemeral-storage", "1e15"))
    },
}
