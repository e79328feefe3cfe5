"""Nothing lasts for ever, nothing is tried for ever, and nothing is kept for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from swe_argo.steps.agents.iterative import WORTH_IT
from swe_argo.steps.agents.solving import AROUND_S
from swe_argo.steps.grade import SANDBOX_MARGIN_S
from swe_argo.workflows.resources import CONFIRMING_CREATE_S, CONFIRMING_RUNS, NEIGHBOUR_RUNS, NEIGHBOUR_SHARE, RUNS
from tests.paths import ROOT
from tests.workflows.pipeline.rendered import EVALUATE, NIGHTLY, ROUND, SHARD, TRAIN, Made, holds, seconds, tables

VALUES = yaml.safe_load((ROOT / "charts" / "swe-argo" / "values.yaml").read_text("utf-8"))


def test_every_workflow_and_every_pod_has_a_deadline_but_what_waits_for_a_shard(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, spec in made.workflows():
            if not spec.get("activeDeadlineSeconds"):
                yield f"{where} has no deadline"
        for where, each in made.pods():
            if bool(each.get("activeDeadlineSeconds")) == ("resource" in each):
                yield f"{where}: a deadline is for the pods of steps, and a shard has its own"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD).pop("activeDeadlineSeconds"),
        lambda m: m.template("solve").pop("activeDeadlineSeconds"),
        lambda m: m.template("child").update(activeDeadlineSeconds=60),
    )


def test_deadlines_stand_on_each_other(made: Made) -> None:
    """What works < its pod < that pod's sandbox; the units of a shard, in waves, < the shard < the run."""

    def faults(made: Made) -> Iterator[str]:
        agent, tests = (_at_most(made, name) for name in ("agent.timeout_s", "grading.timeout_s"))
        solve, grade = (made.template(name)["activeDeadlineSeconds"] for name in ("solve", "grade"))
        starts = VALUES["sandbox"]["pendingSeconds"]
        # In iterative mode the last sandbox may begin to start when so much of the agent's time is left.
        late = max(starts - WORTH_IT * agent, 0)
        if not starts + agent + late < solve < agent + AROUND_S <= VALUES["sandbox"]["maxDeadlineSeconds"]:
            yield f"agent {agent} s and the start of its sandboxes {starts} s < solve {solve} s < its sandbox"
        runs = RUNS * (tests + starts) + CONFIRMING_RUNS * (tests + CONFIRMING_CREATE_S)
        runs += NEIGHBOUR_RUNS * (tests / NEIGHBOUR_SHARE + CONFIRMING_CREATE_S)
        if not runs < grade:
            yield f"all test runs and the starts of their sandboxes {runs} s < grade {grade} s"
        if not grade - starts < (RUNS + CONFIRMING_RUNS) * (tests + SANDBOX_MARGIN_S):
            yield f"grade {grade} s < its sandboxes"
        pending = sum(seconds(made.template(name)["pendingTimeout"]) for name in ("solve", "grade"))
        tries = 1 + int(VALUES["retries"])
        backoff = made.template("solve")["retryStrategy"]["backoff"]
        pauses = sum(
            min(seconds(backoff["duration"]) * int(backoff["factor"]) ** number, seconds(backoff["cap"]))
            for number in range(tries - 1)
        )
        unit = tries * (pending + solve + grade) + 2 * pauses
        waves = -(-_shard_units(made) // made.template("shard")["parallelism"])
        shard, run = (made.spec(name)["activeDeadlineSeconds"] for name in (SHARD, EVALUATE))
        if unit + (waves - 1) * (solve + grade) > shard:
            yield f"a wave with every try {unit} s, and {waves - 1} more, do not fit into a shard, {shard} s"
        step, training = (made.spec(name)["activeDeadlineSeconds"] for name in (ROUND, TRAIN))
        if not shard < run:
            yield f"shard {shard} s < run {run} s"
        if not 2 * run + tries * made.template("learn")["activeDeadlineSeconds"] < step < training:
            yield f"two runs {2 * run} s and what is learnt < step {step} s < training {training} s"

    def agents_work_longer(made: Made) -> None:
        args = made.template("plan")["container"]["args"]
        args[args.index("--at-most=agent.timeout_s=3600")] = "--at-most=agent.timeout_s=5000"

    holds(
        made,
        faults,
        agents_work_longer,
        lambda m: m.template("solve").update(activeDeadlineSeconds=7200),
        lambda m: m.template("solve").update(activeDeadlineSeconds=5000),
        lambda m: m.template("grade").update(activeDeadlineSeconds=3600),
        lambda m: m.template("shard").update(parallelism=5),
        lambda m: m.spec(SHARD).update(activeDeadlineSeconds=4 * 3600),
        lambda m: m.spec(EVALUATE).update(activeDeadlineSeconds=24 * 3600),
        lambda m: m.spec(ROUND).update(activeDeadlineSeconds=14 * 24 * 3600),
    )


def _at_most(made: Made, field: str) -> int:
    """The largest value of a field of the spec that plan lets through."""
    args = made.template("plan")["container"]["args"]
    (found,) = (
        re.fullmatch(rf"--at-most={field}=(\d+)", each) for each in args if each.startswith(f"--at-most={field}=")
    )
    assert found
    return int(found[1])


def _shard_units(made: Made) -> int:
    args = made.template("plan")["container"]["args"]
    return int(next(each for each in args if each.startswith("--shard-size=")).partition("=")[2])


def test_no_pod_waits_for_a_node_for_ever(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, each in made.pods():
            if not each.get("pendingTimeout") and not each.get("timeout"):
                yield f"{where} may be Pending for ever"

    holds(made, faults, *(lambda m, name=name: m.template(name).pop("pendingTimeout") for name in ("child", "grade")))


def test_every_pod_is_tried_again_so_often_and_no_more(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, each in made.pods():
            retry = each.get("retryStrategy", {})
            backoff = retry.get("backoff", {})
            if not {"limit", "expression"} <= retry.keys() or not {"duration", "factor", "cap"} <= backoff.keys():
                yield f"{where}: a retry has limit, expression, duration, factor, cap: {retry}"
            if "maxDuration" in backoff or retry.keys() - {"limit", "expression", "backoff"}:
                yield f"{where}: {retry}"

    holds(
        made,
        faults,
        lambda m: m.template("list").pop("retryStrategy"),
        lambda m: m.template("solve")["retryStrategy"].pop("limit"),
        lambda m: m.template("solve")["retryStrategy"]["backoff"].pop("cap"),
        lambda m: m.template("solve")["retryStrategy"]["backoff"].update(maxDuration="1h"),
        lambda m: m.template("solve")["retryStrategy"].update(affinity={"nodeAntiAffinity": {}}),
    )


def test_neither_a_workflow_nor_a_dag_is_tried_again(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, spec in made.workflows():
            if "retryStrategy" in spec or "retryStrategy" in spec.get("templateDefaults", {}):
                yield f"{where} has a retry for all its templates"
        for where, each in made.templates():
            if "dag" in each and "retryStrategy" in each:
                yield f"{where} is a DAG with a retry"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD).update(retryStrategy={"limit": "1"}),
        lambda m: m.template("unit").update(retryStrategy={"limit": "1"}),
    )


def test_what_a_run_begins_at_a_time_is_a_little_more_than_what_may_run(made: Made) -> None:
    """Up to 500 units at a time; the shards that the chart lets run hold a window of units each."""

    def faults(made: Made) -> Iterator[str]:
        window, shards = (made.template(name)["parallelism"] for name in ("shard", "evaluate"))
        if not 1.0 <= window * shards / 500 <= 2.0:
            yield f"{shards} shards of {window} units against 500"
        if made.chart:
            limits = made.chart.one("ConfigMap", "swe-argo-limits")["data"]
            if not 1.0 <= window * int(limits["shards"]) / int(limits["units"]) <= 2.0:
                yield f"{limits['shards']} shards of {window} units against {limits['units']}"

    holds(
        made,
        faults,
        lambda m: m.template("evaluate").update(parallelism=10),
        lambda m: m.template("shard").update(parallelism=50),
    )


def test_pods_go_when_they_have_ended_and_their_logs_stay(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, spec in made.workflows():
            if spec.get("podGC", {}).get("strategy") != "OnPodCompletion" or "deleteDelayDuration" not in spec["podGC"]:
                yield f"{where}: {spec.get('podGC')}"
            if spec.get("archiveLogs") is not True:
                yield f"{where} keeps no logs"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD).update(podGC={"strategy": "OnWorkflowSuccess", "deleteDelayDuration": "15s"}),
        lambda m: m.spec(SHARD)["podGC"].pop("deleteDelayDuration"),
        lambda m: m.spec(EVALUATE).pop("archiveLogs"),
    )


def test_workflows_go_some_time_after_their_end(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for where, spec in made.workflows():
            kept = spec.get("ttlStrategy", {})
            if (
                "secondsAfterCompletion" not in kept
                and not {"secondsAfterSuccess", "secondsAfterFailure"} <= kept.keys()
            ):
                yield f"{where}: {kept}"
            # The pod that waits for a shard asks every minute at most, and takes one that is gone for a lost one.
            if min(kept.values(), default=0) < 600:
                yield f"{where} goes too soon: {kept}"
        cron = made.spec(NIGHTLY)
        if not {"successfulJobsHistoryLimit", "failedJobsHistoryLimit"} <= cron.keys():
            yield "the nightly run says nothing of how many are kept"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD)["ttlStrategy"].pop("secondsAfterFailure"),
        lambda m: m.spec(SHARD)["ttlStrategy"].update(secondsAfterSuccess=30),
        lambda m: m.spec(EVALUATE).pop("ttlStrategy"),
        lambda m: m.spec(NIGHTLY).pop("failedJobsHistoryLimit"),
    )


def test_nothing_limits_the_pods_of_a_workflow_as_a_whole_and_no_template_fails_fast(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for name, spec in made.workflows():
            if "parallelism" in spec:
                yield f"{name}: spec.parallelism counts all pods"
            for where, each in tables(spec["templates"]):
                if each.get("failFast") is True and (name, where.split("/")[1]) != (TRAIN, "rounds"):
                    yield f"{name}{where}: failFast"

    holds(
        made,
        faults,
        lambda m: m.spec(SHARD).update(parallelism=10),
        lambda m: m.template("shard").update(failFast=True),
        lambda m: m.template("shard")["dag"].update(failFast=True),
    )
