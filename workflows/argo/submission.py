"""Submission of a run: check the spec and send it as a Workflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.contracts.workflow_marks import API_VERSION, KIND, RUN
from swe_argo.steps.settings import settings
from swe_argo.workflows.argo import chart as charts
from swe_argo.workflows.argo import inputs, submit_checks
from swe_argo.workflows.argo.engine import Engine, Plain
from swe_argo.workflows.object_names import EVALUATE, workflow_name
from swe_argo.workflows.parameters import FIELD_PARAMETERS

NOT_SENT: dict[str, Any] = {
    "run_id": True,
    "store": True,
    "workers": True,
    "retries": True,
    "llm": {"config", "config_file"},
    "sandbox": {"kubernetes": {"namespace", "context"}, "resource_factor": True},
}
"""Fields that are not sent in the spec: on the cluster, the chart and the namespace set the place and the concurrency,
or the field has its own parameter. A model group is already merged into the spec, except for its key."""


@dataclass(frozen=True)
class SubmittedWorkflow:
    """A Workflow that was submitted, or would be in a dry run; ``notes`` are messages for the user."""

    workflow: Plain
    run: str
    notes: list[str]

    @property
    def name(self) -> str:
        """The name of the Workflow."""
        return str(self.workflow["metadata"]["name"])


def submit(
    engine: Engine,
    requested: RunSpec,
    *,
    priority: int,
    compare_with: str,
    dry: bool,
    report: Callable[[str], None],
    has_api_key: bool = False,
) -> SubmittedWorkflow:
    """Check the spec, upload its files to the bucket and create the Workflow.

    ``dry``: run all checks, but upload and create nothing. ``has_api_key``: the spec has an API key, which is not sent,
    so that the namespace's Secret must hold it.
    Raises ConfigError if the spec or the cluster is unsuitable, InfraError if the cluster or bucket does not answer.
    """
    spec = submit_checks.fit_to_pipeline(requested)
    local = inputs.find_inputs(spec)
    chart = charts.read(engine)
    submit_checks.check_store(spec, chart)
    with submit_checks.BucketCheck(spec, chart, is_needed=bool(local)) as bucket_check:
        notes = submit_checks.check(engine, spec, chart, has_api_key=has_api_key)
        notes += bucket_check.notes()
    if local:
        store = charts.store_address(chart, spec.store)
        if not dry:
            inputs.upload(local, bucket_check.bucket(), report)
        spec = inputs.in_bucket(spec, local, store)
    body = workflow(spec, priority=priority, compare_with=compare_with)
    if not dry:
        engine.create(body)
    return SubmittedWorkflow(body, spec.run_id or "", notes)


def workflow(spec: RunSpec, *, priority: int = 0, compare_with: str = "") -> Plain:
    """Return the Workflow: a reference to swe-argo-evaluate with arguments. The argument ``spec`` holds the whole spec.

    The other arguments are for people who look at the list of runs; ``spec`` takes precedence.
    """
    run = spec.run_id or ""
    changed = changed_fields(spec.model_dump(mode="json", exclude=NOT_SENT), RunSpec().model_dump(mode="json"))
    values = _field_parameters(spec) | {
        "log-level": settings().log_level,
        "spec": json.dumps(changed, separators=(",", ":")),
        "compare-with": compare_with,
        "priority": str(priority),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": workflow_name(run), "labels": {RUN: run, KIND: "evaluate"}},
        "spec": {
            "workflowTemplateRef": {"name": EVALUATE},
            "arguments": {"parameters": [{"name": name, "value": value} for name, value in values.items()]},
            **({"priority": priority} if priority else {}),
        },
    }


def _field_parameters(spec: RunSpec) -> dict[str, str]:
    """Return the values of the template's parameters by name; empty if the spec leaves the field open."""
    values = {}
    for field in fields():
        parameter = FIELD_PARAMETERS.get(field.name)
        # A setting that the spec does not set keeps the default of the namespace.
        if parameter is None or (parameter.is_setting and not field.is_set(spec)):
            continue
        value = field.of(spec)
        is_open = (
            value is None
            or (parameter.choices and str(value).lower() not in parameter.choices)  # an agent of the user's own
            or (field.name == "llm.temperature" and not agent_of(spec.agent).asks_model)
        )
        values[parameter.name] = "" if is_open else str(value).lower() if isinstance(value, bool) else str(value)
    return values


def changed_fields(fields: Plain, default: Plain) -> Plain:
    """Return the spec without the fields that are None or empty by default and unchanged.

    Nested tables with only default values are left out, too: an older image of the steps may not know them.
    """
    changed = {}
    for name, value in fields.items():
        default_value = default[name]
        if value == default_value and value in (None, []):
            continue
        if isinstance(value, dict) and default_value:
            inner = {key: item for key, item in value.items() if not _is_usual_table(item, default_value[key])}
            changed[name] = changed_fields(inner, default_value)
        else:
            changed[name] = value
    return changed


def _is_usual_table(value: Any, default_value: Any) -> bool:
    """Return whether the value is a table in which every item has its default value; it may lack some of the items."""
    return (
        isinstance(value, dict)
        and bool(default_value)
        and all(item == default_value.get(name, ...) for name, item in value.items())
    )
