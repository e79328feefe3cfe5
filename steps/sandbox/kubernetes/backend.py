"""Backend kubernetes: one pod per sandbox, from the row's own image, with the limits of its namespace."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import Any

from kubernetes.client import ApiException
from kubernetes.utils.quantity import parse_quantity

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError, StepError
from swe_argo.steps.kube.client import OUTAGE, Cluster, RetryPolicy
from swe_argo.steps.kube.kubeconfig import ACCOUNT, find
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.kubernetes.agent_files import Way, add_agent_files, has_agent_files, ways
from swe_argo.steps.sandbox.kubernetes.confinement import prove_confined, reaches_cluster
from swe_argo.steps.sandbox.kubernetes.exec import Exec
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings, read
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod, KubernetesSandbox
from swe_argo.steps.sandbox.kubernetes.pod_spec import LABEL, manifest, owner_reference
from swe_argo.steps.sandbox.kubernetes.pod_status import image_digest
from swe_argo.steps.sandbox.kubernetes.pod_wait import started
from swe_argo.steps.sandbox.kubernetes.pods import Pods
from swe_argo.steps.sandbox.kubernetes.requests import refused
from swe_argo.steps.sandbox.protocol import BundleMount, Sandbox, SandboxRequest

REQUEST = f"{LABEL}/request"
"""Annotation with the id of the ``create`` call that made the pod."""
QUOTA_S = 2.0
"""Seconds between two attempts in a namespace whose quota is used up."""
_LEAVING = RetryPolicy(total_s=10, longest_s=2)
"""Retries for the cleanup after a failure, while the caller waits for its report."""


def connect(spec: SandboxSpec) -> KubernetesBackend:
    """Connect to the spec's cluster and namespace, and read its settings. Raises ConfigError, InfraError."""
    cluster = find(spec.kubernetes)
    settings, _ = read(cluster)
    owner = owner_reference()
    own = ACCOUNT / "namespace"
    if owner and owner["kind"] == "Pod" and own.is_file():
        elsewhere = spec.kubernetes.context or own.read_text().strip() != cluster.namespace
        owner = None if elsewhere else owner
    return KubernetesBackend(cluster, spec, settings, owner=owner)


class KubernetesBackend:
    """Makes and removes pods. ``owner`` is the owner of the pods, an object of the same namespace."""

    def __init__(
        self,
        cluster: Cluster,
        spec: SandboxSpec,
        namespace: NamespaceSettings,
        patience: RetryPolicy | None = None,
        *,
        owner: dict[str, str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._spec = spec
        self._namespace = namespace
        self._patience = patience or RetryPolicy()
        self._owner = owner
        self._pods = Pods(cluster, patience or OUTAGE)
        self._way: Way | None = None
        """The way in which the API server takes an agent's files, once it was asked."""

    def create(self, request: SandboxRequest) -> KubernetesSandbox:
        """Create a running pod under the request's name, replacing one of ours that has the name already.

        A pod that does not start, or must not be used, is removed. Raises ConfigError (an image does not exist, the
        namespace refuses the pod, an agent could reach the cluster), InfraError (UNSCHEDULABLE, IMAGE_PULL, ADMISSION,
        EVICTED, PREEMPTED, NODE_LOST, SANDBOX_CREATE), ResourceError.
        """
        if request.network and not self._namespace.grading_network:
            raise ConfigError(
                f"sandboxes in namespace {self._cluster.namespace} get no network (the chart's grading.network is "
                "false): use --no-grading-network and --no-solve-network, or another namespace",
                field="grading.network" if request.labels.get("role") != "solve" else "sandbox.solve_network",
            )
        body = manifest(request, self._namespace, self._spec, self._owner)
        token = body["metadata"]["annotations"][REQUEST] = uuid.uuid4().hex
        try:
            created = self._make(self._with_agent_files(body, request.bundle))
            pod = started(self._pods, created, self._namespace.pending_seconds)
            transport = KubernetesPod(self._pods, Exec(self._cluster, request.name), pod, self._patience)
            network = request.network
            if request.isolated and not network:
                prove_confined(transport, self._cluster.namespace)
            elif not network:
                network = reaches_cluster(transport, self._cluster.namespace)
            return JobSandbox(_machine(pod, request, network=network), transport)
        except BaseException:  # an interrupt too: nobody else knows of the pod
            self._abandon(request.name, token)
            raise

    def destroy(self, sandbox: Sandbox) -> None:
        """Remove the pod. Raises InfraError if the API server does not answer."""
        assert isinstance(sandbox, JobSandbox)
        sandbox.transport.close()
        self._pods.remove(sandbox.transport.name, sandbox.transport.uid)

    def _with_agent_files(self, body: dict[str, Any], bundle: BundleMount | None) -> dict[str, Any]:
        if bundle is None:
            return body
        *tried, last = ways(self._namespace)
        for way in tried if self._way is None else ():
            # A refusal may come from a policy that does not know such volumes: the other way shows whether that is all.
            with suppress(ConfigError):
                if has_agent_files(self._make(add_agent_files(body, bundle, self._namespace, way), dry_run=True)):
                    self._way = way
                    break
        self._way = self._way or last
        return add_agent_files(body, bundle, self._namespace, self._way)

    def _make(self, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create the pod and return it as stored. Waits for quota as for a node: ending pods release it."""
        doing = f"making pod {body['metadata']['name']}"
        until = time.monotonic() + self._namespace.pending_seconds
        while True:
            try:
                return self._pods.make(body, dry_run=dry_run)
            except ApiException as error:
                if error.status == 409:
                    if mine := self._find_own_pod(body):
                        return mine
                    pause, failed = (
                        0.2,
                        InfraError(FailureClass.SANDBOX_CREATE, f"{doing}: its name does not come free"),
                    )
                else:
                    pause, refusal = QUOTA_S, refused(error, doing)
                    if not isinstance(refusal, InfraError):
                        raise refusal from error
                    failed = refusal
                if time.monotonic() + pause > until:
                    raise failed from error
            time.sleep(pause)

    def _find_own_pod(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the pod that has the name, if this request made it and the answer was lost.

        A pod of an earlier run of this try is removed: its state is unknown. Raises InfraError if it has another owner.
        """
        requested = body["metadata"]
        existing_pod = self._pods.find(requested["name"])
        if existing_pod is None:
            return None
        existing = existing_pod["metadata"]
        if (existing.get("annotations") or {}).get(REQUEST) == requested["annotations"][REQUEST]:
            return existing_pod
        labels = existing.get("labels") or {}
        if any(labels.get(key) != value for key, value in requested["labels"].items()) or _owners(existing) != _owners(
            requested
        ):
            reason = f"the pod name {requested['name']} is taken by one that is not this run's (uid {existing['uid']})"
            raise InfraError(
                FailureClass.SANDBOX_CREATE, reason, detail=f"labels {labels}, owned by {_owners(existing)}"
            )
        self._pods.remove(requested["name"], existing["uid"])
        return None

    def _abandon(self, name: str, token: str) -> None:
        """Remove this request's pod. If that fails, the pod's owner and deadline end it."""
        with suppress(StepError):
            existing_pod = self._pods.find(name, _LEAVING)
            if existing_pod and (existing_pod["metadata"].get("annotations") or {}).get(REQUEST) == token:
                self._pods.remove(name, existing_pod["metadata"]["uid"], _LEAVING)


def _owners(metadata: dict[str, Any]) -> list[str]:
    return sorted(each["uid"] for each in metadata.get("ownerReferences") or [])


def _machine(pod: dict[str, Any], request: SandboxRequest, *, network: bool) -> Machine:
    """Return the machine as granted: the namespace may have changed the limits and the network."""
    container = pod["spec"]["containers"][0]
    limits = container.get("resources", {}).get("limits") or {}
    return Machine(
        backend="kubernetes",
        image=container["image"],
        image_digest=image_digest(pod),
        isolation="container",
        network=network,
        cpus=float(parse_quantity(limits["cpu"])) if "cpu" in limits else None,
        memory_mb=int(parse_quantity(limits["memory"])) >> 20 if "memory" in limits else None,
        resource_factor=request.resource_factor,
    )
