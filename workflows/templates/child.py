"""A node that creates a child Workflow and waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hera.workflows import Parameter, Resource
from hera.workflows import models as m

from swe_argo.workflows.parameters import setting
from swe_argo.workflows.resources import CHILD_PAUSE
from swe_argo.workflows.templates.container import ENDED, NOT_EVICTED, labels, retry


def child_workflow_node(name: str, manifest: str, *, inputs: Sequence[str], account: str, label_run: str) -> Resource:
    """Return the node. A retry finds the same Workflow, because the name in ``manifest`` depends only on the inputs.

    ``account``: the service account that creates it; ``label_run``: the run's id for the pod's label.
    """
    return Resource(
        name=name,
        inputs=[Parameter(name=parameter_name) for parameter_name in inputs],
        action="apply",
        set_owner_reference=True,
        manifest=manifest,
        success_condition="status.phase == Succeeded",
        failure_condition="status.phase in (Failed, Error)",
        # Only the waiting pod is retried; a child that failed is not, e.g. a shard with failed units.
        retry_strategy=retry(
            f"lastRetry.status == 'Error' || !(lastRetry.message matches '{ENDED}|failure condition')",
            "3",
            CHILD_PAUSE,
        ),
        service_account_name=account,
        # Here Argo's own container does the work, and it uses the executor's account.
        executor=m.ExecutorConfig(service_account_name=account),
        archive_location=m.ArtifactLocation(archive_logs=False),  # there are no logs, so no bucket is needed
        labels=labels(name, label_run),
        annotations=dict(NOT_EVICTED),
        pod_spec_patch=setting("waiter-pod"),
    )
