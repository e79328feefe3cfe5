"""Units that do nothing but sleep: rows of one instance of mini under names of their own, and recordings to replay."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from swe_argo.steps.datasets.load import load

INSTANCE = "mini__slugkit-1"
"""Its tests take a tenth of a second."""
IMAGE = "localhost/swe-argo-bench-sleep:1"
SEED = 1


def durations(count: int, mean_s: float, sigma: float, cap_s: float) -> list[float]:
    """Seconds, lognormal with that mean before the cap; the same every time."""
    chance = random.Random(SEED)
    mu = math.log(mean_s) - sigma**2 / 2
    return [round(min(cap_s, chance.lognormvariate(mu, sigma)), 1) for _ in range(count)]


def name(number: int) -> str:
    """The id of a unit's instance, in the order of the plan."""
    return f"mini__sleep-{number:05d}"


def write(folder: Path, sleeps: list[float]) -> None:
    """``rows.jsonl``, and ``recorded/`` with a trajectory for each: it sleeps, then applies the reference patch."""
    (row,) = (item for item in load("mini", "test").rows if item["instance_id"] == INSTANCE)
    rows = ({**row, "instance_id": name(number), "image": IMAGE} for number in range(len(sleeps)))
    (folder / "rows.jsonl").write_text("".join(json.dumps(item, default=str) + "\n" for item in rows))
    for number, seconds in enumerate(sleeps):
        acts = [f"sleep {seconds}", f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"]
        messages = [{"role": "assistant", "content": "", "extra": {"actions": [{"command": item}]}} for item in acts]
        trajectory = {
            "info": {"config": {"model": {"model_name": "sleeper"}}, "exit_status": "Submitted", "submission": ""},
            "messages": [{"role": "user", "content": "sleep"}, *messages],
            "trajectory_format": "mini-swe-agent-1.1",
            "instance_id": name(number),
        }
        place = folder / "recorded" / name(number)
        place.mkdir(parents=True)
        (place / f"{name(number)}.traj.json").write_text(json.dumps(trajectory))
