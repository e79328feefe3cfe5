"""Lifecycle hooks of the kubernetes backend: a Lease that owns the pods, and removal of orphans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.kubeconfig import find
from swe_argo.steps.sandbox.kubernetes.diagnosis import examine
from swe_argo.steps.sandbox.kubernetes.lease import hold_lease
from swe_argo.steps.sandbox.kubernetes.orphans import clean, find_orphans, sweep_run


class KubernetesCare:
    """The hooks of a run with a Lease in a namespace."""

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
        """Remove the pods of a killed step: the run's lease still owns them."""
        sweep_run(self._cluster, self._run_id, unit.instance_id, unit.attempt)

    def finish_unit(self, unit: Unit) -> None:
        """Do nothing: a pod is gone with its sandbox."""


@contextmanager
def care_for(spec: SandboxSpec, plan: Plan) -> Iterator[KubernetesCare]:
    """Yield the hooks of a run, see ``swe_argo.steps.sandbox.care``."""
    cluster = find(spec.kubernetes)
    care = KubernetesCare(cluster, plan.run_id)
    with suppress(StepError):
        clean(cluster, find_orphans(cluster))
    with hold_lease(cluster, plan.run_id, remade=care.set_owner) as lease:
        care.set_owner(lease)
        yield care
