"""Diagnosis of a cluster before a run."""

from __future__ import annotations

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.kube.client import Cluster, error_message
from swe_argo.steps.kube.kubeconfig import find_cluster
from swe_argo.steps.kube.requests import path, request_object
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.kubernetes.namespace import CONFIG_MAP

_ONCE_S = (5.0, 5.0)
"""Seconds to connect and to answer."""
_NO_CHART = "the chart is not installed, so sandboxes are not confined: helm install swe-argo charts/swe-argo"


def diagnose(spec: SandboxSpec) -> Diagnosis:
    """Return the state of the spec's cluster. Raises ConfigError if there is none."""
    return examine(find_cluster(spec.kubernetes))


def examine(cluster: Cluster) -> Diagnosis:
    """Return the API server's version, and whether the chart is in the namespace. Never raises."""
    where = f"namespace {cluster.namespace} of {cluster.name}"
    with cluster.client() as client:
        try:
            version = str(request_object(client, "GET", "/version", timeout_s=_ONCE_S)["gitVersion"])
        except ApiException as error:
            return Diagnosis(False, f"{where} does not answer: {error_message(error)}")
        except (HTTPError, OSError) as error:
            return Diagnosis(False, f"{where} does not answer: {getattr(error, 'reason', error)}")
        try:
            request_object(client, "GET", path("configmaps", cluster.namespace, CONFIG_MAP), timeout_s=_ONCE_S)
        except (ApiException, HTTPError, OSError):
            return Diagnosis(True, f"{version}, {where}", _NO_CHART)
        return Diagnosis(True, f"{version}, {where}")
