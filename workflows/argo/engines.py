"""Choice of the engine that reaches Workflows: an argo-server or the Kubernetes API."""

from __future__ import annotations

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.settings import settings
from swe_argo.workflows.argo.engine import Engine


def open_engine(spec: KubernetesSpec) -> Engine:
    """Return an engine for ARGO_SERVER if set, else for the Kubernetes API.

    Raises ConfigError if none is configured.
    """
    if settings().argo_server:
        from swe_argo.workflows.argo.server_engine import ArgoServerEngine

        return ArgoServerEngine.of(spec)
    from swe_argo.workflows.argo.kube_engine import KubernetesEngine

    return KubernetesEngine.of(spec)
