"""The names a person's commands use are those of the templates."""

from __future__ import annotations

import re

import yaml

from swe_argo.steps.contracts import workflow_marks
from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.workflows import object_names as names
from tests.paths import ROOT


def test_templates_have_expected_names() -> None:
    template_names = {path.stem for path in (ROOT / "templates" / "argo").glob("*.yaml")}
    assert {names.EVALUATE, names.SHARD, names.NIGHTLY} <= template_names
    text = (ROOT / "templates" / "argo" / f"{names.EVALUATE}.yaml").read_text()
    for name in (names.ARTIFACTS, workflow_marks.RUN, workflow_marks.KIND, workflow_marks.PARENT):
        assert name in text, name
    assert names.LIMITS in (ROOT / "templates" / "argo" / f"{names.SHARD}.yaml").read_text()


def test_submit_uses_template_parameters() -> None:
    from swe_argo.steps.contracts.run_spec import RunSpec
    from swe_argo.workflows.argo.submission import workflow

    template = yaml.safe_load((ROOT / "templates" / "argo" / f"{names.EVALUATE}.yaml").read_text())
    parameters = {parameter["name"] for parameter in template["spec"]["arguments"]["parameters"]}
    arguments = {parameter["name"] for parameter in workflow(RunSpec(run_id="r"))["spec"]["arguments"]["parameters"]}
    assert arguments <= parameters


def test_workflow_name_is_always_valid() -> None:
    for run in ("r", "A.b_C", "x" * 63, "0" * 50 + "-a", "a" + "-" * 61 + "b"):
        assert is_run_id(run)
        name = names.workflow_name(run)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name), name
        assert len(f"{name}-s00017") <= 63
    assert names.workflow_name("r") != names.workflow_name("r")
