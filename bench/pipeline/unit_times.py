"""Where a unit's seconds go, in means over the units of a run."""

from __future__ import annotations

import statistics
from collections import defaultdict

from bench.pipeline.installed_pipeline import Ran
from bench.pipeline.watching import moment, parts


def where(ran: Ran) -> dict[str, float]:
    """Part of a unit -> its mean seconds. They add up to the unit's seconds beside its sleep, but for what is marked +.

    What is marked + is in ``main``: the steps' own account of it.
    """
    seconds_by_part: dict[str, list[float]] = defaultdict(list)
    for pod in ran.pods.values():
        step = pod["metadata"].get("labels", {}).get("swe-argo/step", "")
        if step in ("solve", "grade"):
            for name, seconds in parts(pod).items():
                seconds_by_part[f"{step} pod, {name}"].append(seconds)
    for unit in ran.units:
        seconds_by_part["reconcile: solve to grade"].append(unit.grade_begin - unit.solve_end)
        seconds_by_part["reconcile: grade to end"].append(unit.end - unit.grade_end)
        for name, seconds in ran.stages[unit.instance].items():
            seconds_by_part[f"+ {name}"].append(seconds)
    slept = statistics.mean(ran.slept(unit) for unit in ran.units)
    means = {name: round(statistics.mean(seconds), 2) for name, seconds in seconds_by_part.items()}
    for name in ("solve pod, main", "+ solve agent"):
        if name in means:
            means[name] = round(means[name] - slept, 2)
    return means


def cpu(ran: Ran) -> dict[str, float]:
    """Whose pod -> CPU seconds a unit: the steps, and the sandboxes that they make."""
    seconds_by_part: dict[str, float] = defaultdict(float)
    for pod in ran.pods.values():
        labels = pod["metadata"].get("labels", {})
        name = labels.get("swe-argo/step") or f"sandbox of {labels.get('swe-argo/role')}"
        seconds_by_part[name] += ran.pods_s.get(pod["metadata"]["uid"], 0.0)
    return {name: round(seconds / len(ran.units), 2) for name, seconds in sorted(seconds_by_part.items())}


def hand_overs(ran: Ran, places: int) -> list[float]:
    """Seconds from a unit's end to the begin of the next one in its place, while others waited."""
    begins = sorted(unit.begin for unit in ran.units)[places:]
    ends = sorted(unit.end for unit in ran.units)[: len(begins)]
    return [begin - end for begin, end in zip(begins, ends, strict=True)]


def around_shards(ran: Ran) -> dict[str, float]:
    """Mean seconds from a shard's begin to its first unit's, and from its last unit's end to its own."""
    starts, ends = [], []
    for shard in ran.shards:
        mine = [unit for unit in ran.units if unit.shard == shard["metadata"]["name"]]
        starts.append(min(unit.begin for unit in mine) - moment(shard["status"]["startedAt"]))
        ends.append(moment(shard["status"]["finishedAt"]) - max(unit.end for unit in mine))
    return {"shard_start_s": statistics.mean(starts), "shard_end_s": statistics.mean(ends)}


def largest(ran: Ran) -> dict[str, float]:
    """KiB of the run's Workflow objects."""
    from tests.workflows.pipeline.status import size

    return {
        "parent_kib": round(size(ran.parent) / 1024, 1),
        "shard_kib": round(max(size(shard) for shard in ran.shards) / 1024, 1),
    }
