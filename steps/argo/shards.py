"""The Workflows that another one made, a run's shards above all: found, told to stop, waited for."""

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
"""What ends runs has a deadline: it does not wait as long as a step does for an API server that is away."""
_WHOLE_AT_ONCE = "10"
"""A shard's Workflow may take a megabyte."""


def read_parent(cluster: Cluster, name: str) -> Plain | None:
    """The run's own Workflow; None where it is gone. Raises ConfigError without the right, InfraError."""
    doing = f"reading Workflow {name}"
    with cluster.client() as client:
        return _call(lambda: find_object(client, path("workflows", cluster.namespace, name)), doing)


def failed_shards(cluster: Cluster, run_id: str, parent_name: str) -> Iterator[Plain]:
    """The shards' Workflows that did not succeed, whole, as ended or under way. Raises as read_parent()."""
    labels = f"{_of(run_id, parent_name)},{PHASE}!={Phase.SUCCEEDED}"
    with cluster.client() as client:
        yield from list_objects(client, cluster, "workflows", labels, limit=_WHOLE_AT_ONCE)


def stop_shards(
    cluster: Cluster, run_id: str, parent_name: str, *, patience_s: float, pause_s: float = 2.0
) -> list[str]:
    """Stop the run's shards that have not ended, and wait until they have; the names of those.

    One that only appears meanwhile is stopped too. Raises InfraError where some have not ended in ``patience_s``, or
    the API server is away; ConfigError without the rights.
    """
    return stop_workflows(cluster, _of(run_id, parent_name), "the run's shards", patience_s=patience_s, pause_s=pause_s)


def stop_workflows(cluster: Cluster, labels: str, what: str, *, patience_s: float, pause_s: float = 2.0) -> list[str]:
    """The same for all Workflows with these labels; ``what`` they are, in words."""
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
    """Objects by labels, a page in memory at a time; each request is offered again while the API server is away."""
    doing = f"listing {kind} in namespace {cluster.namespace}"
    query = {"labelSelector": labels, "limit": limit, **fields}
    while True:
        page = _call(partial(request_object, client, "GET", path(kind, cluster.namespace), query=dict(query)), doing)
        yield from page.get("items") or []
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return


def names_only(client: ApiClient) -> ApiClient:
    """The client, from now on answered with names and labels alone: a fraction of what the objects are."""
    client.set_default_header("Accept", METADATA_LIST)
    return client


def _of(run_id: str, parent_name: str) -> str:
    return f"{RUN}={run_id},{shards_of(parent_name)}"


def _unended(cluster: Cluster, labels: str) -> dict[str, str]:
    with cluster.client() as client:
        workflows = list_objects(names_only(client), cluster, "workflows", f"{labels},{COMPLETED}!=true")
        return {each["metadata"]["name"]: each["metadata"]["labels"].get(PHASE, "") for each in workflows}


def _shut_down(cluster: Cluster, name: str, phase: str) -> None:
    # One that still waits for a lock heeds Terminate alone; it has made nothing that an exit handler would see to.
    how = {"spec": {"shutdown": "Stop" if phase == Phase.RUNNING else "Terminate"}}
    change_workflow(cluster, name, how, f"stopping Workflow {name}")


def change_workflow(cluster: Cluster, name: str, how: Plain, doing: str) -> None:
    """Merge ``how`` into a Workflow; one that is gone by now needs it no more. Raises as stop_shards() does."""
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
    """Delete what may be gone by now. ``field``: what to change where this is forbidden. Raises StepError."""
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
    """404 on a list is an API that is not there; what may not be asked is named with the account that asked."""
    if error.status == 404:
        return ConfigError(f"{doing}: this cluster has no Argo Workflows", field="--workflow")
    return refused(error, doing, field="--workflow")
