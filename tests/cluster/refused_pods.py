"""Pods that are sandboxes but for one thing, and why each is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swe_argo.steps.sandbox.kubernetes.agent_files import add_agent_files
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
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


def inside(key: str, to: object) -> Change:
    return edit("spec", "containers", 0, key, to=to)


def secure(key: str, to: object) -> Change:
    return edit("spec", "containers", 0, "securityContext", key, to=to)


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
    "subdomain": "other",
    "setHostnameAsFQDN": True,
    "affinity": {"podAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "readinessGates": [{"conditionType": "example.org/ready"}],
    "schedulingGates": [{"name": "example.org/gate"}],
    "hostUsers": False,
    "os": {"name": "linux"},
}

CHANGES: dict[str, tuple[Change, str]] = {
    "name": (edit("metadata", "name", to="solve-one"), "a sandbox's name begins with sb-"),
    "role": (label("role", "train"), "label swe-argo/role, solve or grade"),
    "run": (label("run", None), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "instance": (label("instance", None), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "attempt": (label("attempt", ""), "labels swe-argo/run, swe-argo/instance and swe-argo/attempt"),
    "network": (label("network", None), "label swe-argo/network, none or open"),
    "open solve": (label("network", "open"), "chart value sandbox.solveNetwork"),
    "no deadline": (edit("spec", "activeDeadlineSeconds", to=None), "at most 57600 (chart value sandbox.maxDeadl"),
    "long deadline": (edit("spec", "activeDeadlineSeconds", to=57601), "at most 57600 (chart value sandbox.maxDeadl"),
    "no owner": (edit("metadata", "ownerReferences", to=None), "owned by the Pod or the Lease"),
    "other owner": (edit("metadata", "ownerReferences", to=DEPLOYMENT), "owned by the Pod or the Lease"),
    "an owner of another API": (
        edit("metadata", "ownerReferences", 0, "apiVersion", to="v1"),
        "owned by the Pod or the",
    ),
    "an owner that it holds": (
        edit("metadata", "ownerReferences", 0, "blockOwnerDeletion", to=True),
        "nothing else: no c",
    ),
    "an owner that controls it": (
        edit("metadata", "ownerReferences", 0, "controller", to=True),
        "nothing else: no contr",
    ),
    "label": (label("step", "solve"), "labels that the project does not set: swe-argo/step"),
    "label of Argo's": (
        edit("metadata", "labels", "workflows.argoproj.io/workflow", to="run"),
        "labels that the project does not set: workflows.argoproj.io/workflow",
    ),
    "annotation": (
        edit("metadata", "annotations", "note", to="any"),
        "annotations that the project does not set: note",
    ),
    "finalizer": (edit("metadata", "finalizers", to=["example.org/stay"]), "a sandbox has no finalizers"),
    "name of the server's": (edit("metadata", "generateName", to="sb-"), "does not set: generateName"),
    "node": (edit("spec", "nodeName", to="other"), "the scheduler puts it: no nodeName"),
    "scheduler": (edit("spec", "schedulerName", to="mine"), "the default scheduler"),
    "toleration": (tolerate(key="dedicated"), "chart value sandbox.tolerations"),
    "toleration of everything": (tolerate(operator="Exists"), "chart value sandbox.tolerations"),
    "toleration for longer": (
        tolerate(key="role", value="cpu-sandbox", effect="NoExecute"),
        "chart value sandbox.tolerations",
    ),
    "toleration of a cordon": (
        tolerate(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule"),
        "chart value sandbox.tolerations",
    ),
    "pull secret": (edit("spec", "imagePullSecrets", to=[{"name": "keys"}]), "chart value sandbox.imagePullSecrets"),
    "no limits": (inside("resources", {}), "limits of cpu, ephemeral-storage, memory (chart value sandbox.resources."),
    **{
        f"no limit of {name}": (
            edit("spec", "containers", 0, "resources", "limits", name, to=None),
            "a sandbox has limits",
        )
        for name in ("cpu", "memory", "ephemeral-storage")
    },
    "devices": (
        edit("spec", "containers", 0, "resources", "limits", "example.org/gpu", to="1"),
        "and for nothing else",
    ),
    "claimed devices": (
        lambda pod: (
            edit("spec", "resourceClaims", to=[{"name": "a", "resourceClaimName": "a"}])(pod),
            edit("spec", "containers", 0, "resources", "claims", to=[{"name": "a"}])(pod),
        ),
        "and for nothing else",
    ),
    "restarts": (edit("spec", "restartPolicy", to="Always"), "restartPolicy Never"),
    "restarts after failures": (edit("spec", "restartPolicy", to="OnFailure"), "restartPolicy Never"),
    "grace": (edit("spec", "terminationGracePeriodSeconds", to=3600), "terminationGracePeriodSeconds is 1"),
    "links": (edit("spec", "enableServiceLinks", to=None), "enableServiceLinks is false"),
    "names of the cluster": (
        lambda pod: (edit("spec", "dnsPolicy", to="ClusterFirst")(pod), edit("spec", "dnsConfig", to=None)(pod)),
        "a sandbox without network resolves no names",
    ),
    "names of the node": (
        lambda pod: (edit("spec", "dnsPolicy", to="Default")(pod), edit("spec", "dnsConfig", to=None)(pod)),
        "a sandbox without network resolves no names",
    ),
    "another resolver": (
        edit("spec", "dnsConfig", "nameservers", to=["10.9.8.7"]),
        "without network resolves no names",
    ),
    "search domains": (edit("spec", "dnsConfig", "searches", to=["svc"]), "without network resolves no names"),
    "raw packets": (secure("capabilities", None), "drops the capability NET_RAW"),
    "disk without end": (edit("spec", "volumes", to=[{"name": "jobs", "emptyDir": {}}]), "each has a sizeLimit"),
    "memory as disk": (
        edit("spec", "volumes", 0, "emptyDir", to={"medium": "Memory", "sizeLimit": "1Gi"}),
        "each has a sizeLimit within sandbox.maxResources, and no medium",
    ),
    "a folder of a volume": (
        edit("spec", "containers", 0, "volumeMounts", 0, "subPath", to="a"),
        "mounts its volumes whole",
    ),
    "address of the node": (
        inside("ports", [{"containerPort": 80, "hostIP": "127.0.0.1"}]),
        "no hostPort, hostIP",
    ),
    **{
        f"the container's {name}": (inside(name, value), f"container has fields that the project does not set: {name}")
        for name, value in MORE_OF_THE_CONTAINER.items()
    },
    **{
        f"the pod's {name}": (edit("spec", name, to=value), f"pod has fields that the project does not set: {name}")
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
            edit("spec", "securityContext", name, to=value),
            f"pod has a securityContext with fields that the project does not set: {name}",
        )
        for name, value in {"fsGroup": 1, "supplementalGroups": [0], "runAsNonRoot": False}.items()
    },
    "two containers": (lambda pod: pod["spec"]["containers"].append(ANOTHER), "one container"),
    "init container": (edit("spec", "initContainers", to=[ANOTHER]), "no init container but agent-files"),
    **{f"copier with {variant}": (copier(**wrong), reason) for variant, (wrong, reason) in COPIERS.items()},
    "two copiers": (
        lambda pod: (copier()(pod), pod["spec"]["initContainers"].append(ANOTHER)),
        "no init container but agent-files",
    ),
    "volume of an image by its tag": (agent_volume(reference="localhost/agent:1"), "named by its digest"),
    "volume of an image with another name": (
        volume(image={"reference": PINNED}),
        "volumes are of type emptyDir",
    ),
    "agent's files to write": (
        lambda pod: (agent_volume()(pod), box(pod)["volumeMounts"][-1].update(readOnly=False)),
        "their mount is readOnly",
    ),
    "account": (edit("spec", "serviceAccountName", to="swe-argo-runner"), "the service account swe-argo-sandbox"),
    "token": (edit("spec", "automountServiceAccountToken", to=True), "automountServiceAccountToken is false"),
    "token by default": (
        edit("spec", "automountServiceAccountToken", to=None),
        "automountServiceAccountToken is false",
    ),
    "host network": (edit("spec", "hostNetwork", to=True), "no hostNetwork, hostPID, hostIPC"),
    "host processes": (edit("spec", "hostPID", to=True), "no hostNetwork, hostPID, hostIPC"),
    "host memory": (edit("spec", "hostIPC", to=True), "no hostNetwork, hostPID, hostIPC"),
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
    "seccomp by default": (edit("spec", "securityContext", "seccompProfile", to=None), "seccomp profile RuntimeDef"),
    "proc": (
        lambda pod: (edit("spec", "hostUsers", to=False)(pod), secure("procMount", "Unmasked")(pod)),
        "the runtime's defaults",
    ),
    "sysctl": (
        edit("spec", "securityContext", "sysctls", to=[{"name": "kernel.msgmax", "value": "1"}]),
        "the runtime's defaults",
    ),
    "apparmor": (secure("appArmorProfile", {"type": "Unconfined"}), "the runtime's defaults"),
    "apparmor of all": (
        edit("spec", "securityContext", "appArmorProfile", to={"type": "Unconfined"}),
        "the runtime's defaults",
    ),
    "apparmor by its old name": (
        edit("metadata", "annotations", to={"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}),
        "the runtime's defaults",
    ),
    "selinux": (secure("seLinuxOptions", {"type": "spc_t"}), "the runtime's defaults"),
    "selinux of all": (
        edit("spec", "securityContext", "seLinuxOptions", to={"type": "spc_t"}),
        "the runtime's defaults",
    ),
    "ready probe": (inside("readinessProbe", PROBE), "neither probes nor lifecycle hooks"),
    "start probe": (inside("startupProbe", PROBE), "neither probes nor lifecycle hooks"),
    "probe": (inside("livenessProbe", PROBE), "neither probes nor lifecycle hooks"),
    "hook": (inside("lifecycle", {"postStart": PROBE}), "neither probes nor lifecycle hooks"),
    "priority": (edit("spec", "priorityClassName", to="system-node-critical"), "the priority class swe-argo-sandbox-"),
    "no priority": (edit("spec", "priorityClassName", to=None), "the priority class swe-argo-sandbox-"),
    "control plane": (
        edit("spec", "nodeSelector", "node-role.kubernetes.io/control-plane", to=""),
        "chooses no nodes by other labels",
    ),
    "one node": (
        edit("spec", "nodeSelector", "kubernetes.io/hostname", to="node0"),
        "chooses no nodes by other labels",
    ),
    **{
        f"{amount} of {name}": (
            edit("spec", "containers", 0, "resources", "limits", name, to=amount),
            f"of {name} (chart value sandbox.maxResources)",
        )
        for name, amount in (("cpu", "1k"), ("cpu", "32001m"), ("memory", "10Ti"), ("ephemeral-storage", "1e15"))
    },
}
