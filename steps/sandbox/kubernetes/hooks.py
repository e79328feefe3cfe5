"""Lifecycle hooks of the kubernetes backend: a Lease that owns the pods, and removal of orphans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.kubeconfig import find_cluster
from swe_argo.steps.sandbox.kubernetes.diagnosis import examine
from swe_argo.steps.sandbox.kubernetes.lease import hold_lease
from swe_argo.steps.sandbox.kubernetes.orphans import clean, find_orphans, remove_run_sandboxes


class KubernetesHooks:
    """The hooks of a run whose pods are owned by a Lease (lease.py) in their namespace."""

    env: Mapping[str, str] = {}

    def __init__(self, cluster: Cluster, run_id: str) -> None:
        self._cluster = cluster
        self._run_id = run_id

    def set_owner(self, lease: str) -> None:
        """Set the owner of all further pods to ``lease`` (name and uid, with a slash between)."""
        self.env = {"SWE_ARGO_LEASE": lease}

    def can_create(self) -> bool:
        """Return whether the API server answers."""
        return bool(examine(self._cluster).well)

    def remove_remains(self, unit: Unit) -> None:
        """Remove the pods of a killed step, which the run's lease still owns."""
        remove_run_sandboxes(self._cluster, self._run_id, unit.instance_id, unit.attempt)

    def finish_unit(self, unit: Unit) -> None:
        """Do nothing: a unit's pod is already removed."""


@contextmanager
def run_hooks(spec: SandboxSpec, plan: Plan) -> Iterator[KubernetesHooks]:
    """Yield the hooks of a run, see ``swe_argo.steps.sandbox.hooks``."""
    cluster = find_cluster(spec.kubernetes)
    hooks = KubernetesHooks(cluster, plan.run_id)
    with suppress(StepError):
        clean(cluster, find_orphans(cluster))
    with hold_lease(cluster, plan.run_id, on_new_lease=hooks.set_owner) as lease:
        hooks.set_owner(lease)
        yield hooks
