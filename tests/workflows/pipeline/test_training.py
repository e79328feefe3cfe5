"""How a training is put together: its steps, one after another, and what each of them makes and learns."""

from __future__ import annotations

import re

from swe_argo.steps.contracts.chain import HALT, LEARN, PLAN_ROUND, PLAN_TRAINING
from swe_argo.steps.contracts.training import held_out_run_of, run_of
from swe_argo.workflows.object_names import workflow_name
from swe_argo.workflows.parameters import literal
from swe_argo.workflows.templates.train import OF_STEP, RUNS
from tests.workflows.pipeline.rendered import EVALUATE, ROUND, TRAIN, Manifests, committed, parameters, size

KIB = 1 << 10
NAME = "swe-argo-grpo-verified-0123456789abcdefg"
"""Of a training, as long as may be."""


def test_training_steps_run_in_sequence(argo: Manifests) -> None:
    """Argo counts failed pods of a template that fails fast, tries that are tried again too, but not in DAGs of it."""
    rounds = argo.template("rounds")
    assert (rounds["parallelism"], rounds["failFast"]) == (1, True)
    (task,) = rounds["dag"]["tasks"]
    assert "dag" in argo.template(task["template"]), "a lost pod that waits would end the training"
    assert task["withSequence"]["format"] == "%06d"
    ((plan,), (steps,)) = argo.template("train")["steps"]  # in a DAG a loop that failed fast would never end
    assert (plan["template"], steps["template"]) == ("plan-training", "rounds")
    for next_step, numbers in ((1, [0, 1, 2, 3]), (3, [2, 3]), (4, [3]), (9, [8])):
        assert _count(parameters(steps), next_step, 3) == numbers


def _count(inputs: dict[str, str], next_step: int, steps: int) -> list[int]:
    """Return the numbers that Argo makes of first and count, after plan_training printed these."""
    values = {"next-step": next_step, "steps": steps}
    text = {name: re.sub(r"asInt\(\S+\['([a-z-]+)'\]\)", r"said['\1']", code) for name, code in inputs.items()}
    first, count = (int(eval(text[name].strip("{}="), {"said": values})) for name in ("first", "count"))
    return list(range(first, first + count))


def test_round_phases_run_when_due(argo: Manifests) -> None:
    due = "{{{{tasks.{}.outputs.parameters.due}}}} == true"
    tasks = argo.template("phases")["dag"]["tasks"]
    assert {task["name"]: (task["template"], task.get("depends"), task.get("when")) for task in tasks} == {
        "plan": ("plan-rollouts", None, "{{workflow.parameters.step}} != 000000"),
        "rollouts": ("rollouts", "plan.Succeeded", due.format("plan")),
        "learn": ("learn", "plan.Succeeded && (rollouts.Succeeded || rollouts.Skipped)", None),
        "plan-measurement": ("plan-measurement", "learn.Succeeded || plan.Skipped", None),
        "measurement": ("measurement", "plan-measurement.Succeeded", due.format("plan-measurement")),
    }
    assert "--held-out" not in argo.arguments("plan-rollouts")
    assert "--held-out" in argo.arguments("plan-measurement")


def test_training_names_are_stable(argo: Manifests) -> None:
    names = {
        "make-round": '"{{workflow.name}}-{{inputs.parameters.step}}"',
        "rollouts": '"{{workflow.name}}-r"',
        "measurement": '"{{workflow.name}}-h"',
    }
    for template, name in names.items():
        resource = argo.template(template)["resource"]
        assert (resource["action"], resource["setOwnerReference"]) == ("apply", True), template
        assert f"name: {name}" in resource["manifest"]
        assert "generateName" not in resource["manifest"], template
        assert "swe-argo/parent" in argo.child(template)["metadata"]["labels"], template
        for line in resource["manifest"].splitlines():
            quoted = re.search(r': ("[^"]*\{\{.*\}\}[^"]*"|\{\{=toJson\(.*\)\}\})$', line)
            assert quoted or "{{" not in line, f"{template}: {line}"
    step = f"{workflow_name(NAME)}-000012"
    # ``-s00017`` of a shard follows.
    assert len(NAME) == 40
    assert all(len(f"{step}-{end}") <= 56 for end, _ in RUNS.values())


def test_training_run_names_match() -> None:
    filled = {"{{workflow.parameters.training}}": "one", "{{workflow.parameters.step}}": "000012"}
    for name, run in (("rollouts", run_of("one", 12)), ("measurement", held_out_run_of("one", 12))):
        text = RUNS[name][1]
        for old, new in filled.items():
            text = text.replace(old, new)
        assert text == run
        assert RUNS[name][1].startswith(OF_STEP)


def test_form_fields_reach_plan(argo: Manifests) -> None:
    declared = {item["name"]: item for item in argo.spec(TRAIN)["arguments"]["parameters"]}
    assert not {"value", "default", "valueFrom"} & declared["training"].keys(), "a training would be named by chance"
    for name in ("steps", "groups", "group-size", "lr"):
        field, value = name.replace("-", "_"), f"workflow.parameters['{name}']"
        no_effect = "'--training=' + workflow.parameters.training"
        flag = literal(f"{value} != '' ? '--set={field}=' + {value} : {no_effect}")
        assert flag in argo.arguments("plan-training")
        assert declared[name]["value"] == ""


def test_training_ends_its_workflows(argo: Manifests) -> None:
    for name, lock in ((TRAIN, "training"), (ROUND, "round")):
        mutex = {"name": f"swe-argo-{lock}-{{{{workflow.parameters.training}}}}"}
        assert argo.spec(name)["synchronization"] == {"mutexes": [mutex]}
        assert argo.spec(name)["onExit"] == "end"
    assert argo.task("end", "halt")["when"] == "{{workflow.status}} != Succeeded"
    # A run of another kind would take no place of the limits.
    assert argo.child("rollouts")["spec"]["workflowTemplateRef"] == {"name": EVALUATE}


def test_training_commands_are_valid() -> None:
    programs = {"plan-rollouts": PLAN_ROUND, "plan-measurement": PLAN_ROUND, "learn": LEARN, "halt": HALT}
    for template, program in {"plan-training": PLAN_TRAINING, **programs}.items():
        container = committed().template(template)["container"]
        assert container["command"] == ["python3", "-m", f"swe_argo.steps.{program.name}"]
        flags = {f"--{option.name}" for option in program.options}
        assert {arg.partition("=")[0] for arg in container["args"] if arg.startswith("--")} <= flags


def test_thousand_steps_fit_one_object(argo: Manifests) -> None:
    """For each step one DAG, one node that tries, and two pods: the second for a node that was lost."""
    resource, pods = argo.template("make-round")["resource"], []
    for number in range(1000):
        name = f"{workflow_name(NAME)}.rounds.step({number}:{number:06d})"
        for kind in ("DAG", "Retry", "Pod", "Pod"):
            inputs = {"inputs": {"parameters": [{"name": "step", "value": f"{number:06d}"}]}}
            pods.append({"name": name, "id": name, "type": kind, "boundaryID": name, "children": [name], **inputs})
    assert "spec" not in argo.child("make-round")["spec"]["arguments"]["parameters"][0]
    assert size(resource) < 2 * KIB
    # Beside its times and phases, some 300 bytes a node, which Argo compresses to a tenth.
    assert (size(pods) + 300 * len(pods)) / 10 < 400 * KIB
