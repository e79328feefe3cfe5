"""Check that the cluster answers, accepts our credentials, and has the namespace."""

from __future__ import annotations

import re

from kubernetes.client import ApiClient, ApiException

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import Cluster, RetryPolicy, error_message
from swe_argo.steps.kube.requests import path, request_object
from swe_argo.steps.sandbox.kubernetes.requests import call, refusal_failure

FIRST = RetryPolicy(total_s=3.0, rights_s=0.0)
"""Retries of the first request to a cluster."""
FIRST_S = (3.0, 6.0)
"""Seconds to connect and to answer; the user learns of a missing cluster within 10 s."""


def check_namespace(cluster: Cluster, client: ApiClient, spec: SandboxSpec) -> None:
    """Check cluster and namespace.

    Raises ConfigError if the cluster does not answer, rejects the credentials, or has no such namespace.
    An account that may not read the namespace passes; its rights are checked later.
    """
    name, where = cluster.namespace, f"{cluster.name} ({cluster.configuration.host})"
    doing = f"contacting {where}"
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
                f"{where} rejected the kubeconfig's credentials: log in again, or name "
                "another context with --kube-context",
                field="sandbox.kubernetes.context",
                detail=error_message(error),
            ) from error
        if error.status == 404 and "namespaces" in error_message(error):
            raise _no_namespace(cluster, spec) from error
        if error.status == 404:
            raise ConfigError(
                f"{where} is not a Kubernetes API server: {error_message(error)}", field="sandbox.backend"
            ) from error
        if error.status != 403:
            raise refusal_failure(error, doing, field="sandbox.backend") from error
        return
    if namespace["metadata"].get("deletionTimestamp"):
        raise ConfigError(
            f"namespace {name!r} in {cluster.name} is being deleted; wait, or name another with --namespace",
            field="sandbox.kubernetes.namespace",
        )


def describe_no_answer(error: BaseException | None) -> str:
    """Return the message of a connection failure, without the Python objects that urllib3 puts into it."""
    text = error_message(error) if isinstance(error, ApiException) else str(error)
    return re.sub(r"<?[\w.]+ object at 0x[0-9a-f]+>?[:,] |\w*\(host=[^)]*\): ", "", " ".join(text.split()))


def _no_namespace(cluster: Cluster, spec: SandboxSpec) -> ConfigError:
    context = f" --context {spec.kubernetes.context}" if spec.kubernetes.context else ""
    return ConfigError(
        f"namespace {cluster.namespace!r} does not exist in {cluster.name}: kubectl create namespace "
        f"{cluster.namespace}{context}, or name another with --namespace",
        field="sandbox.kubernetes.namespace",
    )
