"""A unit: one attempt at one instance, ``solve`` then ``grade``, each in a pod of its own."""

from __future__ import annotations

from hera.workflows import DAG, Parameter, Task
from hera.workflows import models as m

from steps.contracts.chain import GRADE, SOLVE
from workflows.template import LIMITS, unit_step


def unit() -> None:
    """Add the DAG of a unit and its two steps to the template around.

    A unit holds one place of the semaphore from its first pod to its last. One that begins at ``grade`` has its patch
    in the store: ``solve`` is skipped, and ``grade`` takes what lies at the key. A step that failed for good fails the
    unit alone.
    """
    given = {name: f"{{{{inputs.parameters.{name}}}}}" for name in ("id", "attempt")}
    place = m.SemaphoreRef(config_map_key_ref=m.ConfigMapKeySelector(name=LIMITS, key="units"))
    with DAG(
        name="unit",
        inputs=[Parameter(name=name) for name in (*given, "begins")],
        synchronization=m.Synchronization(semaphores=[place]),
    ):
        Task(name=SOLVE.name, template=SOLVE.name, arguments=given, when="{{inputs.parameters.begins}} == solve")
        Task(
            name=GRADE.name,
            template=GRADE.name,
            arguments=given,
            depends=f"{SOLVE.name}.Succeeded || {SOLVE.name}.Skipped",
        )
    unit_step(SOLVE, secrets=["credentials"])
    unit_step(GRADE)
