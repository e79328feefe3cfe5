"""The Workflows made by another one, mainly a run's shards: list, stop, wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from kubernetes.client import ApiClient, ApiException

from swe_argo.steps.argo.requests import call, refused
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.workflow_marks import COMPLETED, PHASE, RUN, Phase, shards_of
from swe_argo.steps.errors import ConfigError, InfraError, StepError
from swe_argo.steps.kube.client import Cluster, RetryPolicy
from swe_argo.steps.kube.requests import MERGE_PATCH, METADATA_LIST, Plain, find_object, path, request_object

T = TypeVar("T")

PATIENCE = RetryPolicy(total_s=60.0)
"""Retries of code that ends runs: it has a deadline, so it waits less than a step for an API server that is away."""
_WHOLE_AT_ONCE = "10"
"""Page size for whole Workflows: a shard's may take a megabyte."""


def read_parent(cluster: Cluster, name: str) -> Plain | None:
    """Return the run's own Workflow, or None if it is gone. Raises ConfigError without the right, InfraError."""
    doing = f"reading Workflow {name}"
    with cluster.client() as client:
        return _call(lambda: find_object(client, path("workflows", cluster.namespace, name)), doing)


def failed_shards(cluster: Cluster, run_id: str, parent_name: str) -> Iterator[Plain]:
    """Yield the shards' Workflows that have not succeeded, whole, ended or running. Raises as read_parent()."""
    labels = f"{_of(run_id, parent_name)},{PHASE}!={Phase.SUCCEEDED}"
    with cluster.client() as client:
        yield from list_objects(client, cluster, "workflows", labels, limit=_WHOLE_AT_ONCE)


def stop_shards(
    cluster: Cluster, run_id: str, parent_name: str, *, patience_s: float, pause_s: float = 2.0
) -> list[str]:
    """Stop the run's running shards, and wait until they have ended; return their names.

    A shard that appears meanwhile is stopped too. Raises InfraError if some have not ended after ``patience_s``, or the
    API server is away; ConfigError without the rights.
    """
    return stop_workflows(cluster, _of(run_id, parent_name), "the run's shards", patience_s=patience_s, pause_s=pause_s)


def stop_workflows(cluster: Cluster, labels: str, what: str, *, patience_s: float, pause_s: float = 2.0) -> list[str]:
    """Stop all Workflows with these labels, as ``stop_shards``; ``what`` names them in messages."""
    until = time.monotonic() + patience_s
    stopped: dict[str, None] = {}
    while running := _unended(cluster, labels):
        for name, phase in running.items():
            if name not in stopped:
                _shut_down(cluster, name, phase)
                stopped[name] = None
        if time.monotonic() > until:
            raise InfraError(
                FailureClass.STEP_TIMEOUT,
                f"{len(running)} of {what} have not ended {patience_s:.0f} s after they were told to, "
                f"{next(iter(running))} for one: is Argo's workflow-controller running?",
            )
        time.sleep(pause_s)
    return list(stopped)


def list_objects(
    client: ApiClient, cluster: Cluster, kind: str, labels: str, *, limit: str = "500", **fields: str
) -> Iterator[Plain]:
    """Yield objects by labels, one page in memory at a time, with retries while the API server is away."""
    doing = f"listing {kind} in namespace {cluster.namespace}"
    query = {"labelSelector": labels, "limit": limit, **fields}
    while True:
        page = _call(partial(request_object, client, "GET", path(kind, cluster.namespace), query=dict(query)), doing)
        yield from page.get("items") or []
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return


def names_only(client: ApiClient) -> ApiClient:
    """Make the client request names and labels only, a fraction of the objects; return it."""
    client.set_default_header("Accept", METADATA_LIST)
    return client


def _of(run_id: str, parent_name: str) -> str:
    return f"{RUN}={run_id},{shards_of(parent_name)}"


def _unended(cluster: Cluster, labels: str) -> dict[str, str]:
    with cluster.client() as client:
        workflows = list_objects(names_only(client), cluster, "workflows", f"{labels},{COMPLETED}!=true")
        return {each["metadata"]["name"]: each["metadata"]["labels"].get(PHASE, "") for each in workflows}


def _shut_down(cluster: Cluster, name: str, phase: str) -> None:
    # A Workflow that still waits for a lock obeys only Terminate; it has made nothing for an exit handler.
    how = {"spec": {"shutdown": "Stop" if phase == Phase.RUNNING else "Terminate"}}
    change_workflow(cluster, name, how, f"stopping Workflow {name}")


def change_workflow(cluster: Cluster, name: str, how: Plain, doing: str) -> None:
    """Merge ``how`` into a Workflow; ignore one that is gone by now. Raises as stop_shards() does."""
    with cluster.client() as client:
        client.set_default_header("Content-Type", MERGE_PATCH)
        try:
            call(
                partial(request_object, client, "PATCH", path("workflows", cluster.namespace, name), how),
                doing,
                PATIENCE,
            )
        except ApiException as error:
            if error.status != 404:
                raise _refusal(error, doing) from error


def delete_object(cluster: Cluster, kind: str, name: str, *, field: str) -> None:
    """Delete an object, which may be gone. ``field``: the setting to change if this is forbidden. Raises StepError."""
    doing = f"deleting {name} of {kind}"
    with cluster.client() as client:
        try:
            call(partial(request_object, client, "DELETE", path(kind, cluster.namespace, name)), doing, PATIENCE)
        except ApiException as error:
            if error.status != 404:
                raise refused(error, doing, field=field) from error


def _call(act: Callable[[], T], doing: str) -> T:
    try:
        return call(act, doing, PATIENCE)
    except ApiException as error:
        raise _refusal(error, doing) from error


def _refusal(error: ApiException, doing: str) -> StepError:
    """Return the failure of a refusal: 404 on a list means no Argo; a missing right is named with the account."""
    if error.status == 404:
        return ConfigError(f"{doing}: this cluster has no Argo Workflows", field="--workflow")
    return refused(error, doing, field="--workflow")
