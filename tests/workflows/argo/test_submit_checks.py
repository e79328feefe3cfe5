"""What a cluster cannot do is refused before anything is submitted."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.argo.submit_checks import fit_to_pipeline


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"agent": {"name": "mine/agent.py:Mine"}}, "agent.name"),
        ({"family": "mine/family.py:MINE"}, "family"),
        ({"sandbox": {"backend": "docker"}}, "sandbox.backend"),
        ({"sandbox": {"backend": "e2b", "e2b": {"templates": "mine.json"}}}, "sandbox.e2b.templates"),
        ({"sandbox": {"backend": "mine.backend:connect"}}, "sandbox.backend"),
        ({"sandbox": {"allow_host": True}}, "sandbox.allow_host"),
        ({"agent": {"name": "program", "command": "./a", "folder": "a"}}, "agent.folder"),
        ({"max_cost_usd": 1.0}, "max_cost_usd"),
        ({"give_up_after": 3}, "give_up_after"),
    ],
)
def test_submit_refuses_local_options(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fit_to_pipeline(RunSpec.model_validate(fields))
    assert caught.value.field == field


def test_client_cluster_is_not_in_run() -> None:
    where = {"namespace": "evals", "context": "there"}
    assert fit_to_pipeline(RunSpec.model_validate({"sandbox": {"kubernetes": where}})).sandbox.kubernetes.context


def test_family_of_package_is_allowed() -> None:
    assert fit_to_pipeline(RunSpec(family="mine.families:MINE")).family == "mine.families:MINE"


def test_provider_backend_is_allowed() -> None:
    assert fit_to_pipeline(RunSpec.model_validate({"sandbox": {"backend": "e2b"}})).sandbox.backend == "e2b"
