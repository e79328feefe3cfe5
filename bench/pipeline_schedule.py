"""A run of uneven sleeps through the real pipeline: what a lone unit costs, and how near the run is to the ideal.

Alone, and smaller: ``python -m bench.pipeline_schedule --units 12 --mean 5 --cap 20 --lone 3``. What is measured
is kept in bench-results.pipeline.json as it comes, and not measured again with ``--resume``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.pipeline import sleeps
from bench.pipeline.model import Costs, Shape, list_schedule
from bench.pipeline_scale import RECORDED, shards_at_a_time
from swe_argo.workflows.resources import SHARD_UNITS, WINDOW
from tests.paths import ROOT

KEPT = ROOT / "bench-results.pipeline.json"
SIGMA = 0.8
IDLE_S = 30.0


@dataclass(frozen=True)
class Size:
    """How much is run: the figures that count are those of the defaults."""

    units: int = 200
    mean_s: float = 60.0
    cap_s: float = 270.0
    places: int = 10
    lone: int = 6


def measure(size: Size | None = None, resume: bool = False) -> dict[str, float]:
    """The figures; nothing, and a word on stderr, where SWE_ARGO_TEST_CLUSTER names no kubeconfig."""
    size = size or Size()
    kubeconfig = os.environ.get("SWE_ARGO_TEST_CLUSTER")
    if not kubeconfig:
        sys.stderr.write("pipeline_schedule: not measured, SWE_ARGO_TEST_CLUSTER names no cluster\n")
        return {}
    stored: dict[str, Any] = {"size": asdict(size)}
    if resume and KEPT.exists():
        before = json.loads(KEPT.read_text())
        stored = before if before["size"] == asdict(size) else stored
    if not {"lone", "run"} <= stored.keys():
        from bench.pipeline.installed_pipeline import prepared

        with prepared(Path(kubeconfig), size.places) as pipeline:
            for name, work in (("lone", _lone), ("run", _run)):
                if name not in stored:
                    stored[name] = work(pipeline, size, stored)
                    KEPT.write_text(json.dumps(stored, indent=1) + "\n")
                    sys.stderr.write(f"pipeline_schedule: {name}: {json.dumps(stored[name], indent=1)}\n")
    return figures(stored)


def figures(stored: dict[str, Any]) -> dict[str, float]:
    """What was measured, as the figures of ``make bench``."""
    lone, run = stored["lone"], stored["run"]
    fixed = [seconds + lone["wall_s"] for seconds in run["sleeps"]]
    ideal = list_schedule(fixed, stored["size"]["places"])
    return {
        "pipeline_unit_wall_s": lone["wall_s"],
        "pipeline_unit_cpu_s": lone["cpu_s"],
        "pipeline_run_unit_cpu_s": run["cpu_per_unit_s"],
        "pipeline_run_makespan_s": run["makespan_s"],
        "pipeline_run_ideal_s": ideal,
        "pipeline_real_to_ideal": run["makespan_s"] / ideal,
        "pipeline_efficiency": ideal / run["makespan_s"],
        "pipeline_efficiency_with_plan_and_report": ideal / run["seconds"],
        "pipeline_hand_over_s": run["hand_over_s"],
        "pipeline_parent_kib": run["parent_kib"],
        "pipeline_shard_kib": run["shard_kib"],
    }


def _lone(pipeline: Any, size: Size, _stored: dict[str, Any]) -> dict[str, Any]:
    """Units one at a time. CPU is what each further unit adds: plan, report and idle daemons are in both runs."""
    from bench.pipeline.installed_pipeline import limit, ran
    from bench.pipeline.machine import idle_rate
    from bench.pipeline.unit_times import cpu, hand_overs, where

    limit(pipeline, 1)
    idle = idle_rate(IDLE_S)
    solo = ran(pipeline, "lone-one", [0.0])
    more = ran(pipeline, "lone-more", [5.0 * (number % 2) for number in range(1 + size.lone)])
    limit(pipeline, size.places)
    added = more.cpu_s - solo.cpu_s - idle * (more.seconds - solo.seconds)
    return {
        "wall_s": statistics.mean(more.beside_s),
        "wall_each_s": more.beside_s,
        "cpu_s": added / size.lone,
        "cpu_daemons_s": {
            name: round((more.daemons_s[name] - solo.daemons_s.get(name, 0.0)) / size.lone, 2)
            for name in more.daemons_s
        },
        "cpu_pods_s": cpu(more),
        "idle_cores": idle,
        "hand_over_s": statistics.mean(hand_overs(more, 1)),
        "run_start_s": solo.before_s,
        "run_end_s": solo.after_s,
        "where_s": where(more),
    }


def _run(pipeline: Any, size: Size, stored: dict[str, Any]) -> dict[str, Any]:
    from bench.pipeline.installed_pipeline import ran
    from bench.pipeline.unit_times import around_shards, cpu, hand_overs, largest, where

    many = ran(pipeline, "many", sleeps.durations(size.units, size.mean_s, SIGMA, size.cap_s))
    zero = min(unit.begin for unit in many.units)
    return {
        "sleeps": many.sleeps,
        "makespan_s": many.makespan_s,
        "seconds": many.seconds,
        "before_s": many.before_s,
        "after_s": many.after_s,
        "cpu_per_unit_s": (many.cpu_s - stored["lone"]["idle_cores"] * many.seconds) / size.units,
        "cpu_daemons_s": {name: round(seconds / size.units, 2) for name, seconds in many.daemons_s.items()},
        "cpu_pods_s": cpu(many),
        "busy_cores": many.cpu_s / many.seconds,
        "beside_s": statistics.mean(many.beside_s),
        "hand_over_s": statistics.mean(hand_overs(many, size.places)),
        "pods": sum(unit.pods for unit in many.units),
        "where_s": where(many),
        **largest(many),
        **around_shards(many),
        "units": [
            [unit.instance, unit.shard.rpartition("-")[2], unit.begin - zero, unit.end - zero] for unit in many.units
        ],
    }


def record(stored: dict[str, Any]) -> None:
    """Write what the simulation is checked against, and what it is made with."""
    run = stored["run"]
    shape = Shape(stored["size"]["places"], shards_at_a_time(stored["size"]["places"]), SHARD_UNITS, WINDOW)
    costs = Costs(
        hand_over_s=round(run["hand_over_s"], 2),
        shard_start_s=round(run["shard_start_s"], 2),
        shard_end_s=round(run["shard_end_s"], 2),
        run_start_s=round(run["before_s"] - run["shard_start_s"], 2),
        run_end_s=round(run["after_s"] - run["shard_end_s"], 2),
    )
    header = {"shape": asdict(shape), "costs": asdict(costs), "unit_s": round(run["beside_s"], 2)}
    by_plan = sorted(run["units"])
    lines = json.dumps(header)[:-1] + ', "units": [\n'
    RECORDED.write_text(lines + ",\n".join(json.dumps(row[2:]) for row in by_plan) + "\n]}\n")


def main() -> None:
    """Measure at a size of one's own, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_schedule", description=__doc__)
    whole = Size()
    parser.add_argument("--units", type=int, default=whole.units)
    parser.add_argument("--mean", type=float, default=whole.mean_s, help="seconds of sleep")
    parser.add_argument("--cap", type=float, default=whole.cap_s, help="the longest sleep")
    parser.add_argument("--places", type=int, default=whole.places, help="units at a time")
    parser.add_argument("--lone", type=int, default=whole.lone, help="units that are measured alone")
    parser.add_argument("--resume", action="store_true", help="do not measure again what is kept")
    parser.add_argument("--record", action="store_true", help=f"write {RECORDED.relative_to(ROOT)} too")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was installed is put away
    size = Size(args.units, args.mean, args.cap, args.places, args.lone)
    for name, value in measure(size, args.resume).items():
        sys.stdout.write(f"{name:<44} {value:>10.4g}\n")
    if args.record:
        record(json.loads(KEPT.read_text()))


if __name__ == "__main__":
    main()
