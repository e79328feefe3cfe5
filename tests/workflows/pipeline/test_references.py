"""Every name in the workflows leads somewhere: templates, parameters, outputs, volumes, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swe_argo.steps.contracts.shard import ShardUnit
from tests.workflows.pipeline.rendered import (
    EVALUATE,
    NIGHTLY,
    ROUND,
    SHARD,
    Made,
    Object,
    braces,
    dict_of,
    holds,
    tables,
    texts,
)

MADE = {"child": SHARD, "make-round": ROUND, "rollouts": EVALUATE, "measurement": EVALUATE}
"""Template that makes a Workflow -> of what."""


def test_every_name_leads_somewhere(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for name, spec in made.workflows():
            yield from _unresolved(name, spec)
        for who, arguments, of in (
            *((name, made.child(name)["spec"]["arguments"], of) for name, of in MADE.items()),
            (NIGHTLY, made.spec(NIGHTLY)["workflowSpec"].get("arguments", {}), EVALUATE),
        ):
            known = {each["name"]: each for each in made.spec(of)["arguments"]["parameters"]}
            given = {each["name"] for each in arguments.get("parameters", [])}
            missing = {key for key, each in known.items() if not {"default", "value", "valueFrom"} & each.keys()}
            if given - known.keys() or missing - given:
                yield f"{who} gives {sorted(given)}; {of} wants {sorted(missing)} and knows {sorted(known)}"
        items = {word.removeprefix("item.") for word in braces(made.task("shard", "units")) if word.startswith("item.")}
        if items != ShardUnit.model_fields.keys():
            yield f"units are handed {sorted(items)} of {sorted(ShardUnit.model_fields)}"
        if made.chart:
            yield from (
                f"{text}: a setting is missing" for text in texts(made.objects) if re.search(r"@[a-z0-9-]+@", text)
            )
            for where, table in tables(dict(made.workflows())):
                if "configMapKeyRef" in table and "valueFrom" not in table:
                    ref = table["configMapKeyRef"]
                    # What an expression may come to stands in it as text.
                    keys = re.findall(r"[?:] '(\w+)'", ref["key"]) or [ref["key"]]
                    if not set(keys) <= made.chart.one("ConfigMap", ref["name"])["data"].keys():
                        yield f"{where}: {ref}"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD).update(entrypoint="shards"),
        lambda m: m.spec(EVALUATE).update(onExit="finalise"),
        lambda m: m.task("unit", "grade").update(template="grader"),
        lambda m: m.task("unit", "grade").update(depends="solved.Succeeded"),
        lambda m: m.task("unit", "grade")["arguments"]["parameters"].pop(),
        lambda m: m.task("unit", "grade")["hooks"]["exit"].update(template="stopper"),
        lambda m: m.task("unit", "grade")["hooks"].update(m.task("unit", "solve")["hooks"]),
        lambda m: m.spec(SHARD)["arguments"]["parameters"].remove(
            next(each for each in m.spec(SHARD)["arguments"]["parameters"] if each["name"] == "fail-fast")
        ),
        lambda m: m.task("shard", "units").update(withParam="{{tasks.list.outputs.parameters.unit}}"),
        lambda m: m.template("solve")["container"].update(image="{{workflow.parameters.picture}}"),
        lambda m: m.template("solve")["container"]["args"].append("{{inputs.parameters.name}}"),
        lambda m: m.template("solve")["container"]["volumeMounts"][0].update(name="scratch"),
        lambda m: m.spec(NIGHTLY)["workflowSpec"]["arguments"]["parameters"][0].update(name="compare"),
        lambda m: m.spec(SHARD)["arguments"]["parameters"].append({"name": "more"}),
        lambda m: m.task("shard", "units")["arguments"]["parameters"].pop(),
    )


def _unresolved(name: str, spec: Object) -> Iterator[str]:
    names = [each["name"] for each in spec["templates"]]
    if len(names) != len(set(names)):
        yield f"{name}: two templates of one name"
    known = {each["name"]: each for each in spec["templates"]}
    for what in ("entrypoint", "onExit"):
        if spec.get(what, names[0]) not in known:
            yield f"{name}: {what} {spec[what]}"
    ours = {f"workflow.parameters.{each['name']}" for each in spec["arguments"]["parameters"]}
    for word in braces(spec):
        wanted = [word] if word.startswith("workflow.parameters.") else []
        wanted += [f"workflow.parameters.{each}" for each in re.findall(r"workflow\.parameters\['([^']+)'\]", word)]
        yield from (f"{name}: {each}" for each in wanted if each not in ours)
    volumes = {each["name"] for each in spec["volumes"]}
    for template in spec["templates"]:
        place = f"{name}/{template['name']}"
        inputs = {each["name"] for each in template.get("inputs", {}).get("parameters", [])}
        for text in texts([each.get("hooks", {}) for each in template.get("dag", {}).get("tasks", [])]):
            for each in re.findall(r"workflow\.parameters\['([^']+)'\]", text):
                if f"workflow.parameters.{each}" not in ours:
                    yield f"{place}: a hook asks for {each}"
        for word in braces({key: value for key, value in template.items() if key != "dag"}):
            if word.startswith("inputs.parameters.") and word.removeprefix("inputs.parameters.") not in inputs:
                yield f"{place}: {word}"
        for mount in template.get("container", {}).get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{place}: volume {mount['name']}"
        yield from _unresolved_tasks(place, template, known)


def _unresolved_tasks(place: str, template: Object, known: dict[str, Object]) -> Iterator[str]:
    tasks = {each["name"]: each for each in template.get("dag", {}).get("tasks", [])}
    for task in tasks.values():
        called = known.get(task["template"])
        if called is None:
            yield f"{place}/{task['name']}: template {task['template']}"
            continue
        wanted = {each["name"] for each in called.get("inputs", {}).get("parameters", []) if "default" not in each}
        given = {each["name"] for each in task.get("arguments", {}).get("parameters", [])}
        if wanted != given:
            yield f"{place}/{task['name']} gives {sorted(given)}, {task['template']} wants {sorted(wanted)}"
        for hook in task.get("hooks", {}).values():
            if hook["template"] not in known or f"tasks.{task['name']}.status" not in hook["expression"]:
                yield f"{place}/{task['name']}: hook {hook}"
        for before in re.findall(r"([a-z-]+)(?:\.[A-Z]\w+)?", re.sub(r"[&|!()]", " ", task.get("depends", ""))):
            if before not in tasks:
                yield f"{place}/{task['name']} depends on {before}"
        for text in texts(task):
            for before, output in re.findall(r"tasks\.([\w-]+)\.outputs\.parameters\.([\w-]+)", text):
                gives = dict_of(known[tasks[before]["template"]]).get("outputs", {}).get("parameters", [])
                if output not in {each["name"] for each in gives}:
                    yield f"{place}/{task['name']}: {before} gives no {output}"
