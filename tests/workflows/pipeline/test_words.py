"""What a person reads of a run in Argo's UI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from swe_argo.steps.contracts.agents import AGENTS
from swe_argo.steps.contracts.ids import is_safe_id
from tests.workflows.pipeline.rendered import EVALUATE, NIGHTLY, ROUND, SHARD, TRAIN, Made, committed, holds

WORDS = ("workflows.argoproj.io/title", "workflows.argoproj.io/description")
DISPLAY = "workflows.argoproj.io/display-name"
LEGAL = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-.]{0,61}[a-zA-Z0-9]")
"""Of a display name: Argo ends a node with Error whose name is another."""


def test_titles_descriptions_and_choices_are_there_for_whoever_submits(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for name, each in made.objects.items():
            words = each["metadata"].get("annotations", {})
            yield from (f"{name}: no {word}" for word in WORDS if not words.get(word))
        for name, spec in made.workflows():
            # What is made of a template has words of its own, or none.
            words = spec["workflowMetadata"].get("annotations", {})
            yield from (f"a Workflow of {name}: no {word}" for word in WORDS if not words.get(word))
            for each in spec["arguments"]["parameters"]:
                if not each.get("description"):
                    yield f"{name}: {each['name']} is not described"
        asked = {each["name"]: each for each in made.spec(EVALUATE)["arguments"]["parameters"]}
        if asked.get("agent", {}).get("enum") != ["", *AGENTS]:
            yield f"agent: {asked.get('agent')}"
        yield from (f"{name} has no default" for name, each in asked.items() if not {"default", "value"} & each.keys())
        if len(asked) > 20:
            yield f"{len(asked)} arguments are too many to read"

    holds(
        made,
        faults,
        lambda m: m.objects[NIGHTLY]["metadata"]["annotations"].popitem(),
        lambda m: m.spec(SHARD)["workflowMetadata"].pop("annotations"),
        lambda m: m.spec(EVALUATE)["arguments"]["parameters"][1].pop("description"),
        lambda m: (
            m.spec(EVALUATE)["arguments"]["parameters"][1].pop("default", None)
            or m.spec(EVALUATE)["arguments"]["parameters"][1].pop("value")
        ),
        lambda m: m.spec(EVALUATE)["arguments"]["parameters"][4].pop("enum"),
    )


def test_units_and_shards_have_names_to_read_where_argo_looks_for_them(made: Made) -> None:
    wanted = {"unit": ["id", "attempt"], "child": ["number"], "round": ["step"]}

    def faults(made: Made) -> Iterator[str]:
        for where, each in made.templates():
            name = each.get("annotations", {}).get(DISPLAY, "")
            if re.findall(r"inputs\.parameters\.(\w+)", name) != wanted.get(each["name"], []):
                yield f"{where}: {each.get('annotations')}"
            if DISPLAY in each.get("metadata", {}).get("annotations", {}):
                yield f"{where}: that is the pod's"

    holds(
        made,
        faults,
        lambda m: m.template("unit").pop("annotations"),
        lambda m: m.template("unit")["annotations"].update({DISPLAY: "{{inputs.parameters.id}}"}),
        lambda m: m.template("solve")["metadata"]["annotations"].update({DISPLAY: "x"}),
    )


def test_runs_and_shards_are_found_by_their_labels(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for name, kind in ((EVALUATE, "evaluate"), (SHARD, "shard")):
            metadata = made.spec(name)["workflowMetadata"]
            if metadata.get("labels", {}).get("swe-argo/kind") != kind:
                yield f"{name}: {metadata.get('labels')}"
            if "run-id" not in metadata.get("labelsFrom", {}).get("swe-argo/run", {}).get("expression", ""):
                yield f"{name}: {metadata.get('labelsFrom')}"
        for name, kind in ((TRAIN, "train"), (ROUND, "round")):
            metadata = made.spec(name)["workflowMetadata"]
            found_by = {"swe-argo/training": {"expression": "workflow.parameters.training"}}
            if metadata.get("labels", {}).get("swe-argo/kind") != kind or metadata.get("labelsFrom") != found_by:
                yield f"{name}: {metadata}"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD)["workflowMetadata"]["labels"].update({"swe-argo/kind": "evaluate"}),
        lambda m: m.spec(EVALUATE)["workflowMetadata"].pop("labelsFrom"),
        lambda m: m.spec(TRAIN)["workflowMetadata"].pop("labelsFrom"),
    )


def shown(made: Made, instance: str, attempt: int) -> str:
    """The name of a unit as Argo makes it: its expression, by way of Python, with what it uses of sprig."""
    expression = made.template("unit")["annotations"][DISPLAY].removeprefix("{{=").removesuffix("}}")
    sprig = SimpleNamespace(
        trunc=lambda length, text: text[:length],
        replace=lambda old, new, text: text.replace(old, new),
    )
    given = SimpleNamespace(parameters=SimpleNamespace(id=instance, attempt=str(attempt)))
    return str(eval(expression, {"__builtins__": {}, "sprig": sprig, "inputs": given}))


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z").filter(is_safe_id), st.integers(1, 100))
@example("1", 1)
@example("a" * 58 + "_" + "b" * 20, 1)
@example("a" * 54 + "__" + "b" * 20, 100)
@example("a____________________________________________________________b", 1)
def test_the_name_of_every_unit_is_one_that_argo_shows(instance: str, attempt: int) -> None:
    name = shown(committed(), instance, attempt)
    assert LEGAL.fullmatch(name), name
    assert name.endswith(f".{attempt}")


def test_a_unit_is_called_as_its_instance() -> None:
    assert shown(committed(), "scikit-learn__scikit-learn-25973", 2) == "scikit-learn-scikit-learn-25973.2"
