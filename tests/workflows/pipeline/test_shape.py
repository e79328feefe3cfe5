"""How the workflows are put together: fan-outs, children, locks, ends, and names that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tests.workflows.pipeline.rendered import (
    EVALUATE,
    KINDS,
    NIGHTLY,
    SHARD,
    TRAIN,
    Change,
    Manifests,
    holds,
    tables,
)

LOOPS = ("withParam", "withSequence", "withItems")
MUTEX = "{{=workflow.parameters['run-id'] != '' ? workflow.parameters['run-id'] : workflow.name}}"


def test_manifests_have_current_fields(argo: Manifests) -> None:
    removed = ("schedule", "mutex", "semaphore", "podPriority", "priority", "maxDuration", "containerRuntimeExecutor")

    def faults(argo: Manifests) -> Iterator[str]:
        for name, manifest in argo.objects.items():
            for where, table in tables(manifest["spec"]):
                # (an argument may have such a name, and is a value of `name`)
                yield from (f"{name}{where}: {word}" for word in removed if word in table)

    holds(
        argo,
        faults,
        lambda m: m.spec(NIGHTLY).update(schedule="0 2 * * *"),
        lambda m: m.template("unit")["synchronization"].update(semaphore={}),
        lambda m: m.template("solve").update(priority=1),
    )


def test_manifests_follow_crd_rules(argo: Manifests) -> None:
    """CEL rules of Argo 4.1's full CRDs, which JSON Schema cannot say."""

    def faults(argo: Manifests) -> Iterator[str]:
        for name, spec in argo.workflows():
            if len(spec["templates"]) > 200 or len(spec["arguments"]["parameters"]) > 500:
                yield f"{name} has more than 200 templates or 500 parameters"
        for where, item in argo.templates():
            if sum(kind in item for kind in KINDS) != 1:
                yield f"{where} is not of one kind"
            if not ("container" in item or "resource" in item) and {"timeout", "activeDeadlineSeconds"} & item.keys():
                yield f"{where}: a deadline on what is no pod"
            if item.get("parallelism", 1) < 1 or len(item.get("dag", {}).get("tasks", [])) > 200:
                yield f"{where}: parallelism below 1, or more than 200 tasks"
        yield from _task_faults(argo)
        for name, item in argo.objects.items():
            for where, table in tables(item):
                if table.get("enum") == [] or table.get("schedules") == []:
                    yield f"{name}{where}: an empty list"
        if not argo.spec(NIGHTLY).get("schedules"):
            yield "the nightly run has no schedule"

    holds(
        argo,
        faults,
        lambda m: m.template("unit").update(activeDeadlineSeconds=60),
        lambda m: m.template("unit").update(container={}),
        lambda m: m.template("shard").update(parallelism=0),
        lambda m: m.task("unit", "grade").update(dependencies=["solve"]),
        lambda m: m.task("unit", "grade").update(continueOn={"failed": True}),
        lambda m: m.task("unit", "grade").update(name="grade_it"),
        lambda m: m.task("evaluate", "shards")["withSequence"].update(end="3"),
        lambda m: m.spec(EVALUATE)["arguments"]["parameters"][0].update(enum=[]),
        lambda m: m.spec(NIGHTLY).update(schedules=[]),
    )


def _task_faults(argo: Manifests) -> Iterator[str]:
    for where, _, task in argo.tasks():
        if "depends" in task and {"dependencies", "continueOn"} & task.keys():
            yield f"{where}: depends stands alone"
        if not re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}", task["name"]):
            yield f"{where}: the name"
        if len({"count", "end"} & task.get("withSequence", {"count": 1}).keys()) != 1:
            yield f"{where}: count or end"


def test_fan_out_is_dag_with_window(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        wide = 0
        for where, dag, task in argo.tasks():
            sources = [loop for loop in LOOPS if loop in task]
            wide += bool(sources)
            goes_on = dag["name"] == "rounds" or dag["dag"].get("failFast") is False
            if sources and (len(sources) > 1 or not goes_on or not dag.get("parallelism")):
                yield f"{where}: {sources}, failFast {dag['dag'].get('failFast')}, parallelism {dag.get('parallelism')}"
            if "withItems" in task:
                yield f"{where}: a list in the spec"
        if wide != 3:
            yield f"{wide} fan-outs: shards, units, and the steps of a training"
        for where, template in argo.templates():
            if "steps" in template and where != f"{TRAIN}/train":
                yield f"{where}: steps look at every item again and again"

    holds(
        argo,
        faults,
        lambda m: m.template("shard").pop("parallelism"),
        lambda m: m.template("shard")["dag"].pop("failFast"),
        lambda m: m.template("evaluate")["dag"].update(failFast=True),
        lambda m: m.task("shard", "units").update(withItems=[1]),
        lambda m: m.template("unit").update(steps=[]),
    )


def test_shard_name_is_stable(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        resource = argo.template("child")["resource"]
        if (resource.get("action"), resource.get("setOwnerReference")) != ("apply", True):
            yield f"{resource.get('action')}, owner {resource.get('setOwnerReference')}"
        if resource.get("successCondition") != "status.phase == Succeeded":
            yield f"success: {resource.get('successCondition')}"
        if resource.get("failureCondition") != "status.phase in (Failed, Error)":
            yield f"failure: {resource.get('failureCondition')}"
        text = resource["manifest"]
        if 'name: "{{workflow.name}}-s{{inputs.parameters.number}}"' not in text or "generateName" in text:
            yield "the shard's name does not follow from its number"
        for line in text.splitlines():
            # Filled in before it is read as YAML. A number must be none.
            if "{{" in line and not re.search(r': "[^"]*\{\{.*\}\}[^"]*"$', line) and "priority:" not in line:
                yield f"not quoted: {line.strip()}"
        meta, spec = argo.child()["metadata"], argo.child()["spec"]
        if meta["labels"].keys() != {"swe-argo/kind", "swe-argo/run", "swe-argo/parent", "swe-argo/shard"}:
            yield f"labels: {sorted(meta['labels'])}"
        if meta["labels"].get("swe-argo/kind") != "shard" or spec["workflowTemplateRef"] != {"name": SHARD}:
            yield "it is no shard"
        if argo.task("evaluate", "shards").get("withSequence", {}).get("format") != "%05d":
            yield "numbers have five digits"

    def manifest(old: str, new: str) -> Change:
        def change(argo: Manifests) -> None:
            resource = argo.template("child")["resource"]
            resource["manifest"] = resource["manifest"].replace(old, new)

        return change

    holds(
        argo,
        faults,
        lambda m: m.template("child")["resource"].update(action="create"),
        lambda m: m.template("child")["resource"].pop("setOwnerReference"),
        lambda m: m.template("child")["resource"].pop("failureCondition"),
        manifest("  name: ", "  generateName: "),
        manifest('"{{workflow.name}}"', "{{workflow.name}}"),
        manifest("    swe-argo/kind: shard\n", ""),
        lambda m: m.task("evaluate", "shards")["withSequence"].pop("format"),
    )


def test_limits_span_all_runs(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        of_shard = "{{=workflow.parameters.shard in ['00000', 'check'] ? 'runs' : 'shards'}}"
        for key, holder in (("units", argo.template("unit")), (of_shard, argo.spec(SHARD))):
            places = holder.get("synchronization", {}).get("semaphores")
            if places != [{"configMapKeyRef": {"key": key, "name": "swe-argo-limits"}}]:
                yield f"{key}: {places}"
        if argo.chart:
            limits = argo.chart.one("ConfigMap", "swe-argo-limits")["data"]
            least = {"units": 1, "shards": 1, "runs": 2}
            yield from (f"{key}: {limits.get(key)}" for key in least if int(limits.get(key, 0)) < least[key])
        mutexes = argo.spec(EVALUATE).get("synchronization", {}).get("mutexes")
        if mutexes != [{"name": f"swe-argo-{MUTEX}"}]:
            yield f"mutex: {mutexes}"
        holders = [where for where, template in argo.templates() if "synchronization" in template]
        if holders != [f"{SHARD}/unit"]:
            yield f"locks on {holders}"

    holds(
        argo,
        faults,
        lambda m: m.template("unit").pop("synchronization"),
        lambda m: m.spec(SHARD)["synchronization"]["semaphores"][0]["configMapKeyRef"].update(key="shard"),
        lambda m: m.spec(EVALUATE)["synchronization"]["mutexes"][0].update(name="{{workflow.parameters.run-id}}"),
        lambda m: m.template("grade").update(synchronization=m.template("unit")["synchronization"]),
    )


def test_report_follows_any_outcome(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        if argo.spec(EVALUATE).get("onExit") != "finalize":
            yield "nothing clears up"
        depends = argo.task("evaluate", "report").get("depends", "")
        for end in ("Succeeded", "Failed", "Errored", "Skipped", "Omitted"):
            if f"shards.{end}" not in depends:
                yield f"no report where shards are {end}"
        if "plan.Succeeded" not in depends:
            yield "a report without a plan"
        if argo.task("unit", "grade").get("depends") != "solve.Succeeded || solve.Skipped":
            yield "a unit that has its patch is not graded, or one without is"
        for name in ("solve", "grade"):
            hook = argo.task("unit", name).get("hooks", {}).get("exit", {})
            if hook.get("template") != "stop" or "['fail-fast'] == 'true'" not in hook.get("expression", ""):
                yield f"where a run is to end at the first unit that is lost, {name} does not see to it"
        stop = argo.template("stop")["resource"]
        if stop.get("action") != "patch" or stop.get("failureCondition") != "spec.shutdown == Stop":
            yield f"a unit that ended its run is taken for one that succeeded: {stop}"
        if yaml.safe_load(stop["manifest"])["metadata"]["name"] != "{{workflow.labels.swe-argo/parent}}":
            yield "what is stopped is not the run"
        if argo.task("unit", "solve").get("when") != "{{inputs.parameters.begins}} == solve":
            yield "a unit that has its patch is solved again"

    holds(
        argo,
        faults,
        lambda m: m.spec(EVALUATE).pop("onExit"),
        lambda m: m.task("evaluate", "report").update(depends="plan.Succeeded && shards.Succeeded"),
        lambda m: m.task("evaluate", "report").update(
            depends=m.task("evaluate", "report")["depends"].replace("plan.S", "S")
        ),
        lambda m: m.task("unit", "grade").update(depends="solve"),
        lambda m: m.task("unit", "solve").pop("when"),
        lambda m: m.task("unit", "solve").pop("hooks"),
        lambda m: m.task("unit", "grade")["hooks"]["exit"].update(expression="tasks.grade.status == 'Failed'"),
        lambda m: m.template("stop")["resource"].pop("failureCondition"),
    )


def test_shards_wait_for_canary(argo: Manifests) -> None:
    condition = "{{tasks.plan.outputs.parameters.canary}} != 0"

    def faults(argo: Manifests) -> Iterator[str]:
        units, verdict = argo.task("evaluate", "canary-units"), argo.task("evaluate", "canary")
        if (units.get("depends"), units["template"]) != ("plan", "child") or "withSequence" in units:
            yield "the canary is no part that plan wrote"
        if {"name": "number", "value": "check"} not in units["arguments"]["parameters"]:
            yield "it is another part"
        yield from (f"{item['name']} without a canary" for item in (units, verdict) if item.get("when") != condition)
        for end in ("Succeeded", "Failed", "Errored", "Skipped"):
            if f"canary-units.{end}" not in verdict.get("depends", ""):
                yield f"nobody says what it means that its units are {end}"
        if argo.task("evaluate", "shards").get("depends") != "plan && (canary.Succeeded || canary.Skipped)":
            yield "shards do not wait for what it says, or begin whatever it says"
        arguments = {
            item["name"]: item["value"] for item in argo.spec(NIGHTLY)["workflowSpec"]["arguments"]["parameters"]
        }
        if arguments.get("stop-on-canary") != "true":
            yield "the nightly run goes on where its machines are not to be believed"

    holds(
        argo,
        faults,
        lambda m: m.task("evaluate", "canary-units").update(depends="canary"),
        lambda m: m.task("evaluate", "canary-units")["arguments"]["parameters"].pop(0),
        lambda m: m.task("evaluate", "canary").pop("when"),
        lambda m: m.task("evaluate", "canary").update(depends="plan && canary-units.Succeeded"),
        lambda m: m.task("evaluate", "shards").update(depends="plan"),
        lambda m: m.spec(NIGHTLY)["workflowSpec"].update(arguments={"parameters": []}),
    )


def test_nightly_manifest_is_complete(argo: Manifests) -> None:
    required = {"schedules", "timezone", "concurrencyPolicy", "startingDeadlineSeconds", "stopStrategy", "suspend"}

    def faults(argo: Manifests) -> Iterator[str]:
        cron = argo.spec(NIGHTLY)
        yield from (f"no {name}" for name in sorted(required - cron.keys()))
        if cron.get("concurrencyPolicy") != "Forbid":
            yield "two nights at a time"
        if cron["workflowSpec"].get("workflowTemplateRef") != {"name": EVALUATE}:
            yield f"it runs {cron['workflowSpec'].get('workflowTemplateRef')}"

    holds(
        argo,
        faults,
        *(lambda m, name=name: m.spec(NIGHTLY).pop(name) for name in sorted(required)),
        lambda m: m.spec(NIGHTLY).update(concurrencyPolicy="Allow"),
        lambda m: m.spec(NIGHTLY)["workflowSpec"]["workflowTemplateRef"].update(name="evaluate"),
    )
