"""A unit: one attempt at one instance, ``solve`` then ``grade``, each in a pod of its own."""

from __future__ import annotations

from hera.workflows import DAG, Parameter, Resource, Task
from hera.workflows import models as m

from swe_argo.steps.contracts.chain import GRADE, SOLVE
from swe_argo.steps.contracts.workflow_marks import API_VERSION, PARENT
from swe_argo.workflows.object_names import LIMITS
from swe_argo.workflows.parameters import setting
from swe_argo.workflows.resources import CHILD_PAUSE
from swe_argo.workflows.templates.container import NOT_EVICTED, labels, retry, unit_step


def unit() -> None:
    """Add the DAG of a unit and its two steps to the enclosing template.

    A unit holds one semaphore slot from its first pod to its last. If it begins at ``grade``, its patch is in the
    store: ``solve`` is skipped, and ``grade`` reads the stored file. A step that failed for good fails only the unit,
    unless the run has fail-fast.
    """
    unit_inputs = {name: f"{{{{inputs.parameters.{name}}}}}" for name in ("id", "attempt")}
    semaphore = m.SemaphoreRef(config_map_key_ref=m.ConfigMapKeySelector(name=LIMITS, key="units"))
    with DAG(
        name="unit",
        inputs=[Parameter(name=name) for name in (*unit_inputs, "begins")],
        synchronization=m.Synchronization(semaphores=[semaphore]),
    ):
        Task(
            name=SOLVE.name,
            template=SOLVE.name,
            arguments=unit_inputs,
            when="{{inputs.parameters.begins}} == solve",
            hooks=_fail_fast_hook(SOLVE.name),
        )
        Task(
            name=GRADE.name,
            template=GRADE.name,
            arguments=unit_inputs,
            depends=f"{SOLVE.name}.Succeeded || {SOLVE.name}.Skipped",
            hooks=_fail_fast_hook(GRADE.name),
        )
    unit_step(SOLVE, secrets=["credentials", "sandbox-credentials"], asks=True)
    unit_step(GRADE, secrets=["sandbox-credentials"])
    _stop()


def _fail_fast_hook(task: str) -> dict[str, m.LifecycleHook]:
    """Return the hook that stops the run if the task failed and the run has fail-fast.

    It is an ``exit`` hook: only those see how a task with successors ended.
    """
    failed_fast = f"workflow.parameters['fail-fast'] == 'true' && tasks.{task}.status in ['Failed', 'Error']"
    return {"exit": m.LifecycleHook(template="stop", expression=failed_fast)}


def _stop() -> Resource:
    """Return the node that stops the run as a user would; the run's exit handler then cleans up and reports.

    It fails by design when that is done: if it succeeded, Argo would count the unit as successful.
    """
    manifest = f"""\
apiVersion: {API_VERSION}
kind: Workflow
metadata:
  name: "{{{{workflow.labels.{PARENT}}}}}"
spec:
  shutdown: Stop
"""
    return Resource(
        name="stop",
        action="patch",
        merge_strategy="merge",
        manifest=manifest,
        failure_condition="spec.shutdown == Stop",
        retry_strategy=retry("!(lastRetry.message matches 'failure condition')", "3", CHILD_PAUSE),
        service_account_name="swe-argo-children",
        executor=m.ExecutorConfig(service_account_name="swe-argo-children"),
        archive_location=m.ArtifactLocation(archive_logs=False),
        labels=labels("stop", "{{workflow.parameters.run-id}}"),
        annotations=dict(NOT_EVICTED),
        pod_spec_patch=setting("waiter-pod"),
    )
