"""Every name in the workflows leads somewhere: templates, parameters, outputs, volumes."""

from __future__ import annotations

import re

from swe_argo.steps.contracts.workflow_marks import ShardUnit
from tests.workflows.pipeline.rendered import (
    EVALUATE,
    NIGHTLY,
    ROUND,
    SHARD,
    Manifests,
    Object,
    braces,
    parameters,
    texts,
)

MADE = {"child": SHARD, "make-round": ROUND, "rollouts": EVALUATE, "measurement": EVALUATE}
"""Template that makes a Workflow -> of what."""


def test_workflow_arguments_are_known(argo: Manifests) -> None:
    callers = [(name, argo.child(name)["spec"], of) for name, of in MADE.items()]
    for caller, spec, of in (*callers, (NIGHTLY, argo.spec(NIGHTLY)["workflowSpec"], EVALUATE)):
        declared = {item["name"]: item for item in argo.spec(of)["arguments"]["parameters"]}
        required = {name for name, item in declared.items() if not {"default", "value", "valueFrom"} & item.keys()}
        assert required <= parameters(spec).keys() <= declared.keys(), caller
    items = {word.removeprefix("item.") for word in braces(argo.task("shard", "units")) if word.startswith("item.")}
    assert items == ShardUnit.model_fields.keys()


def test_template_references_exist(argo: Manifests) -> None:
    for name, spec in argo.workflows():
        templates = {item["name"]: item for item in spec["templates"]}
        assert len(templates) == len(spec["templates"]), name
        assert {spec["entrypoint"], spec.get("onExit", spec["entrypoint"])} <= templates.keys(), name
        # In hooks, too, an expression stands without braces.
        own = parameters(spec).keys()
        for text in texts(spec):
            assert set(re.findall(r"workflow\.parameters\['([^']+)'\]", text)) <= own, f"{name}: {text}"
        for word in braces(spec):
            if word.startswith("workflow.parameters."):
                assert word.removeprefix("workflow.parameters.") in own, f"{name}: {word}"
        for template in spec["templates"]:
            inputs = {item["name"] for item in template.get("inputs", {}).get("parameters", [])}
            for word in braces({key: value for key, value in template.items() if key != "dag"}):
                if word.startswith("inputs.parameters."):
                    assert word.removeprefix("inputs.parameters.") in inputs, f"{name}/{template['name']}: {word}"
            mounts = {mount["name"] for mount in template.get("container", {}).get("volumeMounts", [])}
            assert mounts <= {item["name"] for item in spec["volumes"]}, f"{name}/{template['name']}"
            _check_tasks(f"{name}/{template['name']}", template, templates)


def _check_tasks(place: str, template: Object, templates: dict[str, Object]) -> None:
    tasks = {entry["name"]: entry for entry in template.get("dag", {}).get("tasks", [])}
    for task in tasks.values():
        where, called = f"{place}/{task['name']}", templates[task["template"]]
        required = {entry["name"] for entry in called.get("inputs", {}).get("parameters", []) if "default" not in entry}
        assert parameters(task).keys() == required, where
        for hook in task.get("hooks", {}).values():
            assert hook["template"] in templates, where
            assert f"tasks.{task['name']}.status" in hook["expression"], where
        names = re.findall(r"([a-z-]+)(?:\.[A-Z]\w+)?", re.sub(r"[&|!()]", " ", task.get("depends", "")))
        assert set(names) <= tasks.keys(), where
        for text in texts(task):
            for before, output in re.findall(r"tasks\.([\w-]+)\.outputs\.parameters\.([\w-]+)", text):
                gives = templates[tasks[before]["template"]].get("outputs", {}).get("parameters", [])
                assert output in {entry["name"] for entry in gives}, f"{where}: {before} gives no {output}"
