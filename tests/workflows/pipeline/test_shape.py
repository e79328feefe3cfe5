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
    Made,
    holds,
    tables,
)

LOOPS = ("withParam", "withSequence", "withItems")
MUTEX = "{{=workflow.parameters['run-id'] != '' ? workflow.parameters['run-id'] : workflow.name}}"


def test_no_spelling_is_one_that_argo_4_removed(made: Made) -> None:
    removed = ("schedule", "mutex", "semaphore", "podPriority", "priority", "maxDuration", "containerRuntimeExecutor")

    def faults(made: Made) -> Iterator[str]:
        for name, each in made.objects.items():
            for where, table in tables(each["spec"]):
                # (an argument may have such a name, and is a value of `name`)
                yield from (f"{name}{where}: {word}" for word in removed if word in table)

    holds(
        made,
        faults,
        lambda m: m.spec(NIGHTLY).update(schedule="0 2 * * *"),
        lambda m: m.template("unit")["synchronization"].update(semaphore={}),
        lambda m: m.template("solve").update(priority=1),
    )


def test_the_rules_of_the_full_crds_hold(made: Made) -> None:
    """CEL rules of Argo 4.1's full CRDs, which JSON Schema cannot say."""

    def faults(made: Made) -> Iterator[str]:
        for name, spec in made.workflows():
            if len(spec["templates"]) > 200 or len(spec["arguments"]["parameters"]) > 500:
                yield f"{name} has more than 200 templates or 500 parameters"
        for where, each in made.templates():
            if sum(kind in each for kind in KINDS) != 1:
                yield f"{where} is not of one kind"
            if not ("container" in each or "resource" in each) and {"timeout", "activeDeadlineSeconds"} & each.keys():
                yield f"{where}: a deadline on what is no pod"
            if each.get("parallelism", 1) < 1 or len(each.get("dag", {}).get("tasks", [])) > 200:
                yield f"{where}: parallelism below 1, or more than 200 tasks"
        yield from _task_faults(made)
        for name, each in made.objects.items():
            for where, table in tables(each):
                if table.get("enum") == [] or table.get("schedules") == []:
                    yield f"{name}{where}: an empty list"
        if not made.spec(NIGHTLY).get("schedules"):
            yield "the nightly run has no schedule"

    holds(
        made,
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


def _task_faults(made: Made) -> Iterator[str]:
    for where, _, task in made.tasks():
        if "depends" in task and {"dependencies", "continueOn"} & task.keys():
            yield f"{where}: depends stands alone"
        if not re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}", task["name"]):
            yield f"{where}: the name"
        if len({"count", "end"} & task.get("withSequence", {"count": 1}).keys()) != 1:
            yield f"{where}: count or end"


def test_a_fan_out_is_a_dag_with_a_window_one_source_and_room_for_failures(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        wide = 0
        for where, dag, task in made.tasks():
            sources = [loop for loop in LOOPS if loop in task]
            wide += bool(sources)
            goes_on = dag["name"] == "rounds" or dag["dag"].get("failFast") is False
            if sources and (len(sources) > 1 or not goes_on or not dag.get("parallelism")):
                yield f"{where}: {sources}, failFast {dag['dag'].get('failFast')}, parallelism {dag.get('parallelism')}"
            if "withItems" in task:
                yield f"{where}: a list in the spec"
        if wide != 3:
            yield f"{wide} fan-outs: shards, units, and the steps of a training"
        for where, each in made.templates():
            if "steps" in each and where != f"{TRAIN}/train":
                yield f"{where}: steps look at every item again and again"

    holds(
        made,
        faults,
        lambda m: m.template("shard").pop("parallelism"),
        lambda m: m.template("shard")["dag"].pop("failFast"),
        lambda m: m.template("evaluate")["dag"].update(failFast=True),
        lambda m: m.task("shard", "units").update(withItems=[1]),
        lambda m: m.template("unit").update(steps=[]),
    )


def test_a_shard_is_made_under_a_name_that_a_second_try_finds_again(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        resource = made.template("child")["resource"]
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
        meta, spec = made.child()["metadata"], made.child()["spec"]
        if meta["labels"].keys() != {"swe-argo/kind", "swe-argo/run", "swe-argo/parent", "swe-argo/shard"}:
            yield f"labels: {sorted(meta['labels'])}"
        if meta["labels"].get("swe-argo/kind") != "shard" or spec["workflowTemplateRef"] != {"name": SHARD}:
            yield "it is no shard"
        if made.task("evaluate", "shards").get("withSequence", {}).get("format") != "%05d":
            yield "numbers have five digits"

    def manifest(old: str, new: str) -> Change:
        def change(made: Made) -> None:
            resource = made.template("child")["resource"]
            resource["manifest"] = resource["manifest"].replace(old, new)

        return change

    holds(
        made,
        faults,
        lambda m: m.template("child")["resource"].update(action="create"),
        lambda m: m.template("child")["resource"].pop("setOwnerReference"),
        lambda m: m.template("child")["resource"].pop("failureCondition"),
        manifest("  name: ", "  generateName: "),
        manifest('"{{workflow.name}}"', "{{workflow.name}}"),
        manifest("    swe-argo/kind: shard\n", ""),
        lambda m: m.task("evaluate", "shards")["withSequence"].pop("format"),
    )


def test_units_and_shards_are_counted_over_all_runs_and_a_run_is_done_once_at_a_time(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        of_shard = "{{=workflow.parameters.shard in ['00000', 'check'] ? 'runs' : 'shards'}}"
        for key, holder in (("units", made.template("unit")), (of_shard, made.spec(SHARD))):
            places = holder.get("synchronization", {}).get("semaphores")
            if places != [{"configMapKeyRef": {"key": key, "name": "swe-argo-limits"}}]:
                yield f"{key}: {places}"
        if made.chart:
            limits = made.chart.one("ConfigMap", "swe-argo-limits")["data"]
            least = {"units": 1, "shards": 1, "runs": 2}
            yield from (f"{key}: {limits.get(key)}" for key in least if int(limits.get(key, 0)) < least[key])
        mutexes = made.spec(EVALUATE).get("synchronization", {}).get("mutexes")
        if mutexes != [{"name": f"swe-argo-{MUTEX}"}]:
            yield f"mutex: {mutexes}"
        held = [where for where, each in made.templates() if "synchronization" in each]
        if held != [f"{SHARD}/unit"]:
            yield f"locks on {held}"

    holds(
        made,
        faults,
        lambda m: m.template("unit").pop("synchronization"),
        lambda m: m.spec(SHARD)["synchronization"]["semaphores"][0]["configMapKeyRef"].update(key="shard"),
        lambda m: m.spec(EVALUATE)["synchronization"]["mutexes"][0].update(name="{{workflow.parameters.run-id}}"),
        lambda m: m.template("grade").update(synchronization=m.template("unit")["synchronization"]),
    )


def test_there_is_a_report_however_the_shards_end_and_something_clears_up_in_any_case(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        if made.spec(EVALUATE).get("onExit") != "finalize":
            yield "nothing clears up"
        depends = made.task("evaluate", "report").get("depends", "")
        for end in ("Succeeded", "Failed", "Errored", "Skipped", "Omitted"):
            if f"shards.{end}" not in depends:
                yield f"no report where shards are {end}"
        if "plan.Succeeded" not in depends:
            yield "a report without a plan"
        if made.task("unit", "grade").get("depends") != "solve.Succeeded || solve.Skipped":
            yield "a unit that has its patch is not graded, or one without is"
        for name in ("solve", "grade"):
            hook = made.task("unit", name).get("hooks", {}).get("exit", {})
            if hook.get("template") != "stop" or "['fail-fast'] == 'true'" not in hook.get("expression", ""):
                yield f"where a run is to end at the first unit that is lost, {name} does not see to it"
        stop = made.template("stop")["resource"]
        if stop.get("action") != "patch" or stop.get("failureCondition") != "spec.shutdown == Stop":
            yield f"a unit that ended its run is taken for one that succeeded: {stop}"
        if yaml.safe_load(stop["manifest"])["metadata"]["name"] != "{{workflow.labels.swe-argo/parent}}":
            yield "what is stopped is not the run"
        if made.task("unit", "solve").get("when") != "{{inputs.parameters.begins}} == solve":
            yield "a unit that has its patch is solved again"

    holds(
        made,
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


def test_shards_wait_for_the_canary_and_a_run_that_is_to_stop_there_begins_none(made: Made) -> None:
    asked = "{{tasks.plan.outputs.parameters.canary}} != 0"

    def faults(made: Made) -> Iterator[str]:
        units, verdict = made.task("evaluate", "canary-units"), made.task("evaluate", "canary")
        if (units.get("depends"), units["template"]) != ("plan", "child") or "withSequence" in units:
            yield "the canary is no part that plan wrote"
        if {"name": "number", "value": "check"} not in units["arguments"]["parameters"]:
            yield "it is another part"
        yield from (f"{each['name']} without a canary" for each in (units, verdict) if each.get("when") != asked)
        for end in ("Succeeded", "Failed", "Errored", "Skipped"):
            if f"canary-units.{end}" not in verdict.get("depends", ""):
                yield f"nobody says what it means that its units are {end}"
        if made.task("evaluate", "shards").get("depends") != "plan && (canary.Succeeded || canary.Skipped)":
            yield "shards do not wait for what it says, or begin whatever it says"
        arguments = {
            each["name"]: each["value"] for each in made.spec(NIGHTLY)["workflowSpec"]["arguments"]["parameters"]
        }
        if arguments.get("stop-on-canary") != "true":
            yield "the nightly run goes on where its machines are not to be believed"

    holds(
        made,
        faults,
        lambda m: m.task("evaluate", "canary-units").update(depends="canary"),
        lambda m: m.task("evaluate", "canary-units")["arguments"]["parameters"].pop(0),
        lambda m: m.task("evaluate", "canary").pop("when"),
        lambda m: m.task("evaluate", "canary").update(depends="plan && canary-units.Succeeded"),
        lambda m: m.task("evaluate", "shards").update(depends="plan"),
        lambda m: m.spec(NIGHTLY)["workflowSpec"].update(arguments={"parameters": []}),
    )


def test_the_nightly_run_is_complete(made: Made) -> None:
    wanted = {"schedules", "timezone", "concurrencyPolicy", "startingDeadlineSeconds", "stopStrategy", "suspend"}

    def faults(made: Made) -> Iterator[str]:
        cron = made.spec(NIGHTLY)
        yield from (f"no {name}" for name in sorted(wanted - cron.keys()))
        if cron.get("concurrencyPolicy") != "Forbid":
            yield "two nights at a time"
        if cron["workflowSpec"].get("workflowTemplateRef") != {"name": EVALUATE}:
            yield f"it runs {cron['workflowSpec'].get('workflowTemplateRef')}"

    holds(
        made,
        faults,
        *(lambda m, name=name: m.spec(NIGHTLY).pop(name) for name in sorted(wanted)),
        lambda m: m.spec(NIGHTLY).update(concurrencyPolicy="Allow"),
        lambda m: m.spec(NIGHTLY)["workflowSpec"]["workflowTemplateRef"].update(name="evaluate"),
    )
