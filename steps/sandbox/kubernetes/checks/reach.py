"""The check that the cluster answers, accepts our credentials, and has the namespace."""

from __future__ import annotations

import re

from kubernetes.client import ApiClient, ApiException

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import Cluster, RetryPolicy, error_message
from swe_argo.steps.kube.requests import path, request_object
from swe_argo.steps.sandbox.kubernetes.requests import call, refused

FIRST = RetryPolicy(total_s=3.0, rights_s=0.0)
FIRST_S = (3.0, 6.0)
"""Seconds to connect, seconds to answer: for the waiting user, a missing cluster must show within 10 s."""


def check_namespace(cluster: Cluster, client: ApiClient, spec: SandboxSpec) -> None:
    """Check cluster and namespace. Raises ConfigError: no answer, unknown credentials, no such namespace.

    An account that may not read the namespace passes: the check of its rights follows.
    """
    name, where = cluster.namespace, f"{cluster.name} ({cluster.configuration.host})"
    doing = f"asking {where}"
    try:
        namespace = call(
            lambda: request_object(client, "GET", path("namespaces", name=name), timeout_s=FIRST_S), doing, FIRST
        )
    except InfraError as error:
        raise ConfigError(
            f"the API server of {where} does not answer: {describe_no_answer(error.__cause__)}; start the cluster, "
            "or name another with --kube-context",
            field="sandbox.backend",
            detail=error.detail,
        ) from error
    except ApiException as error:
        if error.status == 401 or "system:anonymous" in error_message(error):
            raise ConfigError(
                f"{where} does not accept the credentials that the kubeconfig has for it: log in again, or name "
                "another context with --kube-context",
                field="sandbox.kubernetes.context",
                detail=error_message(error),
            ) from error
        if error.status == 404 and "namespaces" in error_message(error):
            raise _no_namespace(cluster, spec) from error
        if error.status == 404:
            raise ConfigError(
                f"{where} is no Kubernetes API server: {error_message(error)}", field="sandbox.backend"
            ) from error
        if error.status != 403:
            raise refused(error, doing, field="sandbox.backend") from error
        return
    if namespace["metadata"].get("deletionTimestamp"):
        raise ConfigError(
            f"namespace {name!r} in {cluster.name} is being deleted; wait, or name another with --namespace",
            field="sandbox.kubernetes.namespace",
        )


def describe_no_answer(error: BaseException | None) -> str:
    """Describe a connection failure in the system's words, without the addresses of Python's objects."""
    text = error_message(error) if isinstance(error, ApiException) else str(error)
    return re.sub(r"<?[\w.]+ object at 0x[0-9a-f]+>?[:,] |\w*\(host=[^)]*\): ", "", " ".join(text.split()))


def _no_namespace(cluster: Cluster, spec: SandboxSpec) -> ConfigError:
    context = f" --context {spec.kubernetes.context}" if spec.kubernetes.context else ""
    return ConfigError(
        f"there is no namespace {cluster.namespace!r} in {cluster.name}: kubectl create namespace "
        f"{cluster.namespace}{context}, or name another with --namespace",
        field="sandbox.kubernetes.namespace",
    )
