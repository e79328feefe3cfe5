"""The child Workflow for one shard of a run's units, with a limited number of units at a time."""

from __future__ import annotations

from hera.workflows import DAG, Container, Parameter, Task, WorkflowTemplate
from hera.workflows import models as m

from swe_argo.steps.contracts.chain import CANARY_SHARD
from swe_argo.steps.contracts.shard import Shard
from swe_argo.workflows.object_names import LIMITS, SHARD
from swe_argo.workflows.resources import SHARD_S, WINDOW
from swe_argo.workflows.templates.container import IN, OUT, key_template, program, retries_argument, stored_artifact
from swe_argo.workflows.templates.unit import unit
from swe_argo.workflows.templates.workflow import spec

FIRST = ("00000", CANARY_SHARD)
"""Shards that a run starts with."""
PLACE = f"workflow.parameters.shard in {list(FIRST)} ? 'runs' : 'shards'"
"""The semaphore of a shard, as an expression."""
DESCRIPTION = """\
Works through one shard of a run's units: `solve`, then `grade`, for each. Created by `swe-argo-evaluate`; do not submit
it by hand, because it reads the list that `plan` wrote."""


def shard() -> WorkflowTemplate:
    """Return the WorkflowTemplate ``swe-argo-shard``. Parameters: the run, a five-digit number, settings of steps."""
    item_fields = {name: f"{{{{item.{name}}}}}" for name in ("id", "attempt", "begins")}
    # The first shard of a run has a semaphore of its own, so that a run with many shards, or one without progress, does
    # not block the start of other runs.
    semaphore = m.SemaphoreRef(config_map_key_ref=m.ConfigMapKeySelector(name=LIMITS, key=f"{{{{={PLACE}}}}}"))
    with WorkflowTemplate(
        **spec(SHARD, "Shard of an evaluation", DESCRIPTION, kind="shard", deadline_s=SHARD_S),
        entrypoint="shard",
        arguments=[
            Parameter(name="run-id", description="The run."),
            Parameter(name="shard", description="Number of the shard, five digits."),
            Parameter(
                name="fail-fast", value="false", description="End the run at the first unit without retries left."
            ),
            Parameter(name="log-level", value="INFO", description="Log level of the steps."),
            retries_argument(),
        ],
        synchronization=m.Synchronization(semaphores=[semaphore]),
        ttl_strategy=m.TTLStrategy(seconds_after_success=900, seconds_after_failure=86_400),
    ) as template:
        with DAG(name="shard", fail_fast=False, parallelism=WINDOW):
            Task(name="list", template="list")
            Task(
                name="units",
                template="unit",
                depends="list",
                with_param="{{tasks.list.outputs.parameters.units}}",
                arguments=item_fields,
            )
        _list()
        unit()  # created within the template, they belong to it
    return template


def _list() -> Container:
    """Return the node that reads the list of units from a file into a parameter: Argo fans out only over parameters.

    The file is named after the shard's Workflow, whose name starts with its owner's: a shard created for the run of
    another Workflow finds no list.
    """
    file = key_template(Shard).format(run="{{workflow.parameters.run-id}}", name="{{workflow.name}}")
    return program(
        "list",
        [f"{IN}/shard.json", f"{OUT}/units.json"],
        command=["cp"],
        account="swe-argo-steps",
        label_run="{{workflow.parameters.run-id}}",
        inputs=[stored_artifact("shard", f"{IN}/shard.json", file)],
        outputs=[Parameter(name="units", value_from=m.ValueFrom(path=f"{OUT}/units.json"))],
    )
