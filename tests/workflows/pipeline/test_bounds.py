"""Nothing lasts for ever, nothing is tried for ever, and nothing is kept for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from swe_argo.steps.agents.iterative import MIN_TIME_SHARE
from swe_argo.steps.agents.solving import OVERHEAD_S
from swe_argo.steps.grade import SANDBOX_MARGIN_S
from swe_argo.workflows.resources import CONFIRMING_CREATE_S, CONFIRMING_RUNS, NEIGHBOUR_RUNS, NEIGHBOUR_SHARE, RUNS
from tests.paths import ROOT
from tests.workflows.pipeline.rendered import EVALUATE, NIGHTLY, ROUND, SHARD, TRAIN, Manifests, holds, seconds, tables

VALUES = yaml.safe_load((ROOT / "charts" / "swe-argo" / "values.yaml").read_text("utf-8"))


def test_pods_have_deadlines(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            if not spec.get("activeDeadlineSeconds"):
                yield f"{where} has no deadline"
        for where, template in argo.pods():
            if bool(template.get("activeDeadlineSeconds")) == ("resource" in template):
                yield f"{where}: a deadline is for the pods of steps, and a shard has its own"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).pop("activeDeadlineSeconds"),
        lambda m: m.template("solve").pop("activeDeadlineSeconds"),
        lambda m: m.template("child").update(activeDeadlineSeconds=60),
    )


def test_deadlines_are_nested(argo: Manifests) -> None:
    """What works < its pod < that pod's sandbox; the units of a shard, in waves, < the shard < the run."""

    def faults(argo: Manifests) -> Iterator[str]:
        agent, tests = (_at_most(argo, name) for name in ("agent.timeout_s", "grading.timeout_s"))
        solve, grade = (argo.template(name)["activeDeadlineSeconds"] for name in ("solve", "grade"))
        starts = VALUES["sandbox"]["pendingSeconds"]
        # In iterative mode the last sandbox may begin to start when so much of the agent's time is left.
        late = max(starts - MIN_TIME_SHARE * agent, 0)
        if not starts + agent + late < solve < agent + OVERHEAD_S <= VALUES["sandbox"]["maxDeadlineSeconds"]:
            yield f"agent {agent} s and the start of its sandboxes {starts} s < solve {solve} s < its sandbox"
        runs = RUNS * (tests + starts) + CONFIRMING_RUNS * (tests + CONFIRMING_CREATE_S)
        runs += NEIGHBOUR_RUNS * (tests / NEIGHBOUR_SHARE + CONFIRMING_CREATE_S)
        if not runs < grade:
            yield f"all test runs and the starts of their sandboxes {runs} s < grade {grade} s"
        if not grade - starts < (RUNS + CONFIRMING_RUNS) * (tests + SANDBOX_MARGIN_S):
            yield f"grade {grade} s < its sandboxes"
        pending = sum(seconds(argo.template(name)["pendingTimeout"]) for name in ("solve", "grade"))
        tries = 1 + int(VALUES["retries"])
        backoff = argo.template("solve")["retryStrategy"]["backoff"]
        pauses = sum(
            min(seconds(backoff["duration"]) * int(backoff["factor"]) ** number, seconds(backoff["cap"]))
            for number in range(tries - 1)
        )
        unit = tries * (pending + solve + grade) + 2 * pauses
        waves = -(-_shard_units(argo) // argo.template("shard")["parallelism"])
        shard, run = (argo.spec(name)["activeDeadlineSeconds"] for name in (SHARD, EVALUATE))
        if unit + (waves - 1) * (solve + grade) > shard:
            yield f"a wave with every try {unit} s, and {waves - 1} more, do not fit into a shard, {shard} s"
        step, training = (argo.spec(name)["activeDeadlineSeconds"] for name in (ROUND, TRAIN))
        if not shard < run:
            yield f"shard {shard} s < run {run} s"
        if not 2 * run + tries * argo.template("learn")["activeDeadlineSeconds"] < step < training:
            yield f"two runs {2 * run} s and what is learnt < step {step} s < training {training} s"

    def agents_work_longer(argo: Manifests) -> None:
        args = argo.template("plan")["container"]["args"]
        args[args.index("--at-most=agent.timeout_s=3600")] = "--at-most=agent.timeout_s=5000"

    holds(
        argo,
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


def _at_most(argo: Manifests, field: str) -> int:
    """The largest value of a field of the spec that plan lets through."""
    args = argo.template("plan")["container"]["args"]
    (match,) = (re.fullmatch(rf"--at-most={field}=(\d+)", arg) for arg in args if arg.startswith(f"--at-most={field}="))
    assert match
    return int(match[1])


def _shard_units(argo: Manifests) -> int:
    args = argo.template("plan")["container"]["args"]
    return int(next(arg for arg in args if arg.startswith("--shard-size=")).partition("=")[2])


def test_pods_have_pending_timeout(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, template in argo.pods():
            if not template.get("pendingTimeout") and not template.get("timeout"):
                yield f"{where} may be Pending for ever"

    holds(argo, faults, *(lambda m, name=name: m.template(name).pop("pendingTimeout") for name in ("child", "grade")))


def test_pods_have_bounded_retries(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, template in argo.pods():
            retry = template.get("retryStrategy", {})
            backoff = retry.get("backoff", {})
            if not {"limit", "expression"} <= retry.keys() or not {"duration", "factor", "cap"} <= backoff.keys():
                yield f"{where}: a retry has limit, expression, duration, factor, cap: {retry}"
            if "maxDuration" in backoff or retry.keys() - {"limit", "expression", "backoff"}:
                yield f"{where}: {retry}"

    holds(
        argo,
        faults,
        lambda m: m.template("list").pop("retryStrategy"),
        lambda m: m.template("solve")["retryStrategy"].pop("limit"),
        lambda m: m.template("solve")["retryStrategy"]["backoff"].pop("cap"),
        lambda m: m.template("solve")["retryStrategy"]["backoff"].update(maxDuration="1h"),
        lambda m: m.template("solve")["retryStrategy"].update(affinity={"nodeAntiAffinity": {}}),
    )


def test_dags_have_no_retries(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            if "retryStrategy" in spec or "retryStrategy" in spec.get("templateDefaults", {}):
                yield f"{where} has a retry for all its templates"
        for where, template in argo.templates():
            if "dag" in template and "retryStrategy" in template:
                yield f"{where} is a DAG with a retry"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).update(retryStrategy={"limit": "1"}),
        lambda m: m.template("unit").update(retryStrategy={"limit": "1"}),
    )


def test_parallelism_exceeds_limits(argo: Manifests) -> None:
    """Up to 500 units at a time; the shards that the chart lets run hold a window of units each."""

    def faults(argo: Manifests) -> Iterator[str]:
        window, shards = (argo.template(name)["parallelism"] for name in ("shard", "evaluate"))
        if not 1.0 <= window * shards / 500 <= 2.0:
            yield f"{shards} shards of {window} units against 500"
        if argo.chart:
            limits = argo.chart.one("ConfigMap", "swe-argo-limits")["data"]
            if not 1.0 <= window * int(limits["shards"]) / int(limits["units"]) <= 2.0:
                yield f"{limits['shards']} shards of {window} units against {limits['units']}"

    holds(
        argo,
        faults,
        lambda m: m.template("evaluate").update(parallelism=10),
        lambda m: m.template("shard").update(parallelism=50),
    )


def test_pods_are_deleted_at_end(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            if spec.get("podGC", {}).get("strategy") != "OnPodCompletion" or "deleteDelayDuration" not in spec["podGC"]:
                yield f"{where}: {spec.get('podGC')}"
            if spec.get("archiveLogs") is not True:
                yield f"{where} keeps no logs"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).update(podGC={"strategy": "OnWorkflowSuccess", "deleteDelayDuration": "15s"}),
        lambda m: m.spec(SHARD)["podGC"].pop("deleteDelayDuration"),
        lambda m: m.spec(EVALUATE).pop("archiveLogs"),
    )


def test_workflows_have_ttl(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            times = spec.get("ttlStrategy", {})
            if (
                "secondsAfterCompletion" not in times
                and not {"secondsAfterSuccess", "secondsAfterFailure"} <= times.keys()
            ):
                yield f"{where}: {times}"
            # The pod that waits for a shard asks every minute at most, and takes one that is gone for a lost one.
            if min(times.values(), default=0) < 600:
                yield f"{where} goes too soon: {times}"
        cron = argo.spec(NIGHTLY)
        if not {"successfulJobsHistoryLimit", "failedJobsHistoryLimit"} <= cron.keys():
            yield "the nightly run says nothing of how many are kept"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD)["ttlStrategy"].pop("secondsAfterFailure"),
        lambda m: m.spec(SHARD)["ttlStrategy"].update(secondsAfterSuccess=30),
        lambda m: m.spec(EVALUATE).pop("ttlStrategy"),
        lambda m: m.spec(NIGHTLY).pop("failedJobsHistoryLimit"),
    )


def test_workflows_never_fail_fast(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for name, spec in argo.workflows():
            if "parallelism" in spec:
                yield f"{name}: spec.parallelism counts all pods"
            for where, template in tables(spec["templates"]):
                if template.get("failFast") is True and (name, where.split("/")[1]) != (TRAIN, "rounds"):
                    yield f"{name}{where}: failFast"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).update(parallelism=10),
        lambda m: m.template("shard").update(failFast=True),
        lambda m: m.template("shard")["dag"].update(failFast=True),
    )
