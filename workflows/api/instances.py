"""The instances that a request selects from its dataset."""

from __future__ import annotations

from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.datasets import load, selection
from swe_argo.steps.datasets.bucket_inputs import fetch_inputs
from swe_argo.steps.families import rows
from swe_argo.workflows.api.request import RunRequest


def read_instances(request: RunRequest) -> list[Instance]:
    """Return the instances that a request selects from its dataset, in order, as an agent sees them.

    Instances that a validation (``select.validated``) excludes are included. Raises ConfigError if the dataset or the
    selection is wrong, InfraError if a hub or bucket does not answer.
    """
    spec = request.spec
    with fetch_inputs(spec) as inputs:
        dataset = load.load(
            inputs.dataset, spec.split, revision=spec.revision, answers=inputs.answers, family=spec.family
        )
        selected, _ = selection.select(dataset.rows, inputs.select, dataset.by_id)
    return [rows.to_instance(row, spec.agent.hints) for row in selected]
