"""A Workflow that makes another one, and waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hera.workflows import Parameter, Resource
from hera.workflows import models as m

from swe_argo.workflows.parameters import setting
from swe_argo.workflows.resources import CHILD_PAUSE
from swe_argo.workflows.templates.container import ENDED, STAYS, labels, retry


def child(name: str, manifest: str, *, inputs: Sequence[str], account: str, label_run: str) -> Resource:
    """Tried again it finds the same one: the name in ``manifest`` follows from the inputs."""
    return Resource(
        name=name,
        inputs=[Parameter(name=each) for each in inputs],
        action="apply",
        set_owner_reference=True,
        manifest=manifest,
        success_condition="status.phase == Succeeded",
        failure_condition="status.phase in (Failed, Error)",
        # One that failed is not tried again, as a shard with units that failed is: only the pod that waits for it is.
        retry_strategy=retry(
            f"lastRetry.status == 'Error' || !(lastRetry.message matches '{ENDED}|failure condition')",
            "3",
            CHILD_PAUSE,
        ),
        service_account_name=account,
        # Here the container of the step is Argo's own, and asks by the executor's account.
        executor=m.ExecutorConfig(service_account_name=account),
        archive_location=m.ArtifactLocation(archive_logs=False),  # it has nothing to say, and so needs no bucket
        labels=labels(name, label_run),
        annotations=dict(STAYS),
        pod_spec_patch=setting("waiter-pod"),
    )
