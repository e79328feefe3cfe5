"""The structure of the workflows: fan-outs, children, locks and ends."""

from __future__ import annotations

import re

import yaml

from tests.workflows.pipeline.rendered import EVALUATE, KINDS, NIGHTLY, SHARD, TRAIN, Manifests, parameters, tables

RUN = "{{=workflow.parameters['run-id'] != '' ? workflow.parameters['run-id'] : workflow.name}}"


def test_manifests_have_current_fields(argo: Manifests) -> None:
    removed = {"schedule", "mutex", "semaphore", "podPriority", "priority", "maxDuration", "containerRuntimeExecutor"}
    for name, manifest in argo.objects.items():
        for where, table in tables(manifest["spec"]):
            assert not removed & table.keys(), f"{name}{where}"


def test_manifests_follow_crd_rules(argo: Manifests) -> None:
    """CEL rules of Argo 4.1's full CRDs, which JSON Schema cannot say."""
    for name, spec in argo.workflows():
        assert len(spec["templates"]) <= 200, name
        assert len(spec["arguments"]["parameters"]) <= 500, name
    for where, item in argo.templates():
        assert sum(kind in item for kind in KINDS) == 1, where
        is_pod = "container" in item or "resource" in item
        assert is_pod or not {"timeout", "activeDeadlineSeconds"} & item.keys(), where
        assert item.get("parallelism", 1) >= 1, where
        assert len(item.get("dag", {}).get("tasks", [])) <= 200, where
    for where, _, task in argo.tasks():
        assert not ("depends" in task and {"dependencies", "continueOn"} & task.keys()), where
        assert re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}", task["name"]), where
        assert len({"count", "end"} & task.get("withSequence", {"count": 1}).keys()) == 1, where
    for name, item in argo.objects.items():
        for where, table in tables(item):
            assert [] not in (table.get("enum"), table.get("schedules")), f"{name}{where}"


def test_fan_out_is_dag_with_window(argo: Manifests) -> None:
    """Shards, units, and the steps of a training; ``steps`` would look at every item again and again."""
    loops = {"withParam", "withSequence", "withItems"}
    wide = [(where, dag, loops & task.keys()) for where, dag, task in argo.tasks() if loops & task.keys()]
    assert len(wide) == 3
    for where, dag, sources in wide:
        assert len(sources) == 1, where
        assert sources != {"withItems"}, where
        assert dag["parallelism"], where
        assert dag["name"] == "rounds" or dag["dag"]["failFast"] is False, where
    assert [where for where, template in argo.templates() if "steps" in template] == [f"{TRAIN}/train"]


def test_shard_name_is_stable(argo: Manifests) -> None:
    resource = argo.template("child")["resource"]
    assert (resource["action"], resource["setOwnerReference"]) == ("apply", True)
    assert resource["successCondition"] == "status.phase == Succeeded"
    assert resource["failureCondition"] == "status.phase in (Failed, Error)"
    text = resource["manifest"]
    assert 'name: "{{workflow.name}}-s{{inputs.parameters.number}}"' in text
    assert "generateName" not in text
    for line in text.splitlines():
        # Filled in before it is read as YAML. A number must be unquoted.
        assert "{{" not in line or re.search(r': "[^"]*\{\{.*\}\}[^"]*"$', line) or "priority:" in line, line
    labels, spec = argo.child()["metadata"]["labels"], argo.child()["spec"]
    assert labels.keys() == {"swe-argo/kind", "swe-argo/run", "swe-argo/parent", "swe-argo/shard"}
    assert (labels["swe-argo/kind"], spec["workflowTemplateRef"]) == ("shard", {"name": SHARD})
    assert argo.task("evaluate", "shards")["withSequence"]["format"] == "%05d"


def test_limits_span_all_runs(argo: Manifests) -> None:
    of_shard = "{{=workflow.parameters.shard in ['00000', 'check'] ? 'runs' : 'shards'}}"
    for key, holder in (("units", argo.template("unit")), (of_shard, argo.spec(SHARD))):
        semaphore = {"configMapKeyRef": {"key": key, "name": "swe-argo-limits"}}
        assert holder["synchronization"] == {"semaphores": [semaphore]}
    assert argo.spec(EVALUATE)["synchronization"] == {"mutexes": [{"name": f"swe-argo-{RUN}"}]}
    assert [where for where, template in argo.templates() if "synchronization" in template] == [f"{SHARD}/unit"]


def test_report_follows_any_outcome(argo: Manifests) -> None:
    assert argo.spec(EVALUATE)["onExit"] == "finalize"
    depends = argo.task("evaluate", "report")["depends"]
    for end in ("shards.Succeeded", "shards.Failed", "shards.Errored", "shards.Skipped", "shards.Omitted"):
        assert end in depends
    assert "plan.Succeeded" in depends
    # A unit that has its patch is only graded.
    assert argo.task("unit", "solve")["when"] == "{{inputs.parameters.begins}} == solve"
    assert argo.task("unit", "grade")["depends"] == "solve.Succeeded || solve.Skipped"


def test_fail_fast_stops_run(argo: Manifests) -> None:
    for name in ("solve", "grade"):
        hook = argo.task("unit", name)["hooks"]["exit"]
        assert hook["template"] == "stop"
        assert "['fail-fast'] == 'true'" in hook["expression"]
    stop = argo.template("stop")["resource"]
    # If it succeeded, Argo would count the unit as successful.
    assert (stop["action"], stop["failureCondition"]) == ("patch", "spec.shutdown == Stop")
    assert yaml.safe_load(stop["manifest"])["metadata"]["name"] == "{{workflow.labels.swe-argo/parent}}"


def test_shards_wait_for_canary(argo: Manifests) -> None:
    units, verdict = argo.task("evaluate", "canary-units"), argo.task("evaluate", "canary")
    assert (units["depends"], units["template"]) == ("plan", "child")
    assert "withSequence" not in units
    assert parameters(units)["number"] == "check"
    assert units["when"] == verdict["when"] == "{{tasks.plan.outputs.parameters.canary}} != 0"
    for end in ("Succeeded", "Failed", "Errored", "Skipped"):
        assert f"canary-units.{end}" in verdict["depends"]
    assert argo.task("evaluate", "shards")["depends"] == "plan && (canary.Succeeded || canary.Skipped)"
    assert parameters(argo.spec(NIGHTLY)["workflowSpec"])["stop-on-canary"] == "true"


def test_nightly_manifest_is_complete(argo: Manifests) -> None:
    cron = argo.spec(NIGHTLY)
    assert cron.keys() >= {"timezone", "startingDeadlineSeconds", "stopStrategy", "suspend"}
    assert cron["schedules"]
    assert cron["concurrencyPolicy"] == "Forbid"
    assert cron["workflowSpec"]["workflowTemplateRef"] == {"name": EVALUATE}
