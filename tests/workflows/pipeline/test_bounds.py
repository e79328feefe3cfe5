"""Nothing lasts for ever, nothing is tried for ever, and nothing is kept for ever."""

from __future__ import annotations

import yaml

from swe_argo.steps.agents.iterative import MIN_TIME_SHARE
from swe_argo.steps.agents.solving import OVERHEAD_S
from swe_argo.steps.grade import SANDBOX_MARGIN_S
from swe_argo.workflows.resources import CONFIRMING_CREATE_S, CONFIRMING_RUNS, NEIGHBOUR_RUNS, NEIGHBOUR_SHARE, RUNS
from tests.paths import ROOT
from tests.workflows.pipeline.rendered import EVALUATE, NIGHTLY, ROUND, SHARD, TRAIN, Manifests, seconds, tables

VALUES = yaml.safe_load((ROOT / "charts" / "swe-argo" / "values.yaml").read_text("utf-8"))


def test_pods_have_deadlines(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        assert spec["activeDeadlineSeconds"], where
    for where, template in argo.pods():
        # A pod that waits for a child Workflow has none: the child has its own.
        assert bool(template.get("activeDeadlineSeconds")) != ("resource" in template), where
        assert template.get("pendingTimeout"), where


def test_deadlines_are_nested(argo: Manifests) -> None:
    """The work < its pod < that pod's sandbox; the units of a shard, in waves, < the shard < the run."""
    agent, tests = (_at_most(argo, name) for name in ("agent.timeout_s", "grading.timeout_s"))
    solve, grade, learn = (argo.template(name)["activeDeadlineSeconds"] for name in ("solve", "grade", "learn"))
    starts = VALUES["sandbox"]["pendingSeconds"]
    # In iterative mode the last sandbox may begin to start when so much of the agent's time is left.
    late = max(starts - MIN_TIME_SHARE * agent, 0)
    assert starts + agent + late < solve < agent + OVERHEAD_S <= VALUES["sandbox"]["maxDeadlineSeconds"]
    runs = RUNS * (tests + starts) + CONFIRMING_RUNS * (tests + CONFIRMING_CREATE_S)
    assert runs + NEIGHBOUR_RUNS * (tests / NEIGHBOUR_SHARE + CONFIRMING_CREATE_S) < grade
    assert grade - starts < (RUNS + CONFIRMING_RUNS) * (tests + SANDBOX_MARGIN_S)
    pending = sum(seconds(argo.template(name)["pendingTimeout"]) for name in ("solve", "grade"))
    tries, backoff = 1 + int(VALUES["retries"]), argo.template("solve")["retryStrategy"]["backoff"]
    pauses = (seconds(backoff["duration"]) * int(backoff["factor"]) ** number for number in range(tries - 1))
    unit = tries * (pending + solve + grade) + 2 * sum(min(pause, seconds(backoff["cap"])) for pause in pauses)
    waves = -(-_shard_units(argo) // argo.template("shard")["parallelism"])
    shard, run, step, training = (argo.spec(name)["activeDeadlineSeconds"] for name in (SHARD, EVALUATE, ROUND, TRAIN))
    assert unit + (waves - 1) * (solve + grade) <= shard < run, "one wave with every try, and the other waves"
    assert 2 * run + tries * learn < step < training


def _at_most(argo: Manifests, field: str) -> int:
    """Return the largest value of a field of the spec that plan allows."""
    (value,) = (arg.rpartition("=")[2] for arg in argo.arguments("plan") if arg.startswith(f"--at-most={field}="))
    return int(value)


def _shard_units(argo: Manifests) -> int:
    (value,) = (arg.partition("=")[2] for arg in argo.arguments("plan") if arg.startswith("--shard-size="))
    return int(value)


def test_pods_have_bounded_retries(argo: Manifests) -> None:
    for where, template in argo.pods():
        assert template["retryStrategy"].keys() == {"limit", "expression", "backoff"}, where
        assert template["retryStrategy"]["backoff"].keys() == {"duration", "factor", "cap"}, where


def test_dags_have_no_retries(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        assert "retryStrategy" not in spec.keys() | spec.get("templateDefaults", {}).keys(), where
    for where, template in argo.templates():
        assert not {"dag", "retryStrategy"} <= template.keys(), where


def test_parallelism_exceeds_limits(argo: Manifests) -> None:
    """Up to 500 units at a time."""
    window, shards = (argo.template(name)["parallelism"] for name in ("shard", "evaluate"))
    assert 1.0 <= window * shards / 500 <= 2.0


def test_pods_are_deleted_at_end(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        assert spec["podGC"]["strategy"] == "OnPodCompletion", where
        assert "deleteDelayDuration" in spec["podGC"], where
        assert spec["archiveLogs"] is True, where


def test_workflows_have_ttl(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        times = spec["ttlStrategy"]
        assert {"secondsAfterSuccess", "secondsAfterFailure"} <= times.keys() or "secondsAfterCompletion" in times, (
            where
        )
        # The pod that waits for a shard asks every minute at most, and takes one that is gone for a lost one.
        assert min(times.values()) >= 600, where
    assert {"successfulJobsHistoryLimit", "failedJobsHistoryLimit"} <= argo.spec(NIGHTLY).keys()


def test_workflows_never_fail_fast(argo: Manifests) -> None:
    for name, spec in argo.workflows():
        assert "parallelism" not in spec, f"{name}: spec.parallelism counts all pods"
        for where, template in tables(spec["templates"]):
            assert template.get("failFast") is not True or (name, where.split("/")[1]) == (TRAIN, "rounds"), where
