"""What a person reads of a run in Argo's UI."""

from __future__ import annotations

import re
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from swe_argo.steps.contracts.ids import is_safe_id
from swe_argo.steps.contracts.registry import AGENTS
from tests.workflows.pipeline.rendered import EVALUATE, ROUND, SHARD, TRAIN, Manifests, committed

WORDS = {"workflows.argoproj.io/title", "workflows.argoproj.io/description"}
DISPLAY = "workflows.argoproj.io/display-name"
LEGAL = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-.]{0,61}[a-zA-Z0-9]")
"""Of a display name: Argo ends a node with Error whose name is another."""


def test_templates_have_descriptions(argo: Manifests) -> None:
    for name, item in argo.objects.items():
        assert item["metadata"]["annotations"].keys() >= WORDS, name
    for name, spec in argo.workflows():
        # A Workflow made of a template has texts of its own, or none.
        assert spec["workflowMetadata"]["annotations"].keys() >= WORDS, name
        assert all(item.get("description") for item in spec["arguments"]["parameters"]), name
    fields = {item["name"]: item for item in argo.spec(EVALUATE)["arguments"]["parameters"]}
    assert fields["agent"]["enum"] == ["", *AGENTS]
    assert all({"default", "value"} & item.keys() for item in fields.values())
    assert len(fields) <= 20, "too many to read"


def test_units_have_display_names(argo: Manifests) -> None:
    expected = {"unit": ["id", "attempt"], "child": ["number"], "round": ["step"]}
    for where, template in argo.templates():
        name = template.get("annotations", {}).get(DISPLAY, "")
        assert re.findall(r"inputs\.parameters\.(\w+)", name) == expected.get(template["name"], []), where
        assert DISPLAY not in template.get("metadata", {}).get("annotations", {}), f"{where}: that is the pod's"


def test_workflows_have_labels(argo: Manifests) -> None:
    for name, kind in ((EVALUATE, "evaluate"), (SHARD, "shard"), (TRAIN, "train"), (ROUND, "round")):
        metadata = argo.spec(name)["workflowMetadata"]
        assert metadata["labels"]["swe-argo/kind"] == kind
        if kind in ("train", "round"):
            assert metadata["labelsFrom"] == {"swe-argo/training": {"expression": "workflow.parameters.training"}}
        else:
            assert "run-id" in metadata["labelsFrom"]["swe-argo/run"]["expression"]


def displayed_name(argo: Manifests, instance: str, attempt: int) -> str:
    """The name of a unit as Argo makes it: its expression, by way of Python, with what it uses of sprig."""
    expression = argo.template("unit")["annotations"][DISPLAY].removeprefix("{{=").removesuffix("}}")
    sprig = SimpleNamespace(
        trunc=lambda length, text: text[:length],
        replace=lambda old, new, text: text.replace(old, new),
    )
    inputs = SimpleNamespace(parameters=SimpleNamespace(id=instance, attempt=str(attempt)))
    return str(eval(expression, {"__builtins__": {}, "sprig": sprig, "inputs": inputs}))


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z").filter(is_safe_id), st.integers(1, 100))
@example("1", 1)
@example("a" * 58 + "_" + "b" * 20, 1)
@example("a" * 54 + "__" + "b" * 20, 100)
@example("a____________________________________________________________b", 1)
def test_display_name_is_always_legal(instance: str, attempt: int) -> None:
    name = displayed_name(committed(), instance, attempt)
    assert LEGAL.fullmatch(name), name
    assert name.endswith(f".{attempt}")


def test_display_name_follows_instance() -> None:
    assert displayed_name(committed(), "scikit-learn__scikit-learn-25973", 2) == "scikit-learn-scikit-learn-25973.2"
