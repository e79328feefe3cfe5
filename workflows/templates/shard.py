"""A shard: the child Workflow that works through one part of a run's units, a window of them at a time."""

from __future__ import annotations

from hera.workflows import DAG, Container, Parameter, Task, WorkflowTemplate
from hera.workflows import models as m

from swe_argo.steps.contracts.chain import CANARY_SHARD
from swe_argo.steps.contracts.shard import Shard
from swe_argo.workflows.object_names import LIMITS, SHARD
from swe_argo.workflows.resources import SHARD_S, WINDOW
from swe_argo.workflows.templates.container import IN, OUT, by_key, key_of, program, retries_argument
from swe_argo.workflows.templates.unit import unit
from swe_argo.workflows.templates.workflow import spec

FIRST = ("00000", CANARY_SHARD)
"""Shards that a run begins with."""
PLACE = f"workflow.parameters.shard in {list(FIRST)} ? 'runs' : 'shards'"
"""The limit that a shard takes a place of, as an expression."""
DESCRIPTION = """\
Works through one part of a run's units: `solve`, then `grade`, for each. Made by `swe-argo-evaluate`; by hand it is
of no use, for it reads the list that `plan` wrote."""


def shard() -> WorkflowTemplate:
    """The WorkflowTemplate ``swe-argo-shard``. Parameters: the run, a number of five digits, what holds for steps."""
    item_fields = {name: f"{{{{item.{name}}}}}" for name in ("id", "attempt", "begins")}
    # The first shard of a run has a place of its own kind: a run of many shards, or one that does not move, keeps no
    # other run from beginning.
    place = m.SemaphoreRef(config_map_key_ref=m.ConfigMapKeySelector(name=LIMITS, key=f"{{{{={PLACE}}}}}"))
    with WorkflowTemplate(
        **spec(SHARD, "Shard of an evaluation", DESCRIPTION, kind="shard", deadline_s=SHARD_S),
        entrypoint="shard",
        arguments=[
            Parameter(name="run-id", description="The run."),
            Parameter(name="shard", description="Number of the part, five digits."),
            Parameter(name="fail-fast", value="false", description="End the run at the first unit out of retries."),
            Parameter(name="log-level", value="INFO", description="What steps print."),
            retries_argument(),
        ],
        synchronization=m.Synchronization(semaphores=[place]),
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
        unit()  # made within the template, they are its own
    return template


def _list() -> Container:
    """The list travels as a file, and becomes a parameter here: Argo fans out over parameters alone.

    The file is named after the shard's Workflow, whose name begins with its owner's: a shard that is made for the run
    of another Workflow finds no list.
    """
    file = key_of(Shard).format(run="{{workflow.parameters.run-id}}", name="{{workflow.name}}")
    return program(
        "list",
        [f"{IN}/shard.json", f"{OUT}/units.json"],
        command=["cp"],
        account="swe-argo-steps",
        label_run="{{workflow.parameters.run-id}}",
        inputs=[by_key("shard", f"{IN}/shard.json", file)],
        outputs=[Parameter(name="units", value_from=m.ValueFrom(path=f"{OUT}/units.json"))],
    )
