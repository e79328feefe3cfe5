"""What a turn of an agent costs beside its model and its sandbox, and how large the file of a hundred of them is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import instant_answers


def measure() -> dict[str, float]:
    """Milliseconds of CPU a turn, the dearer format; megabytes of 100 turns, token ids in, observations not."""
    costs = []
    for fn_calling in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            costs.append(instant_answers.measure(Path(folder), fn_calling=fn_calling))
    return {
        "turn_cpu_ms": max(cost.ms_a_turn for cost in costs),
        "trajectory_100_turns_mb": max(cost.bytes_beside for cost in costs) / 1e6,
    }
