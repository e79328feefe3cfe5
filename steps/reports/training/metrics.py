"""``metrics.jsonl``: a flat JSON object per step, with every figure; docs/training.md defines them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from swe_argo.steps.contracts.training import StepFigures
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.training.stored_training import StoredTraining

METRICS_FILE = "metrics.jsonl"
_DIRECT_FIGURES = (
    *("run", "finished_at", "rollouts", "learnt", "infra_failures", "reward_mean", "resolved_share", "turns_mean"),
    *("prompt_tokens_mean", "sampled_tokens_mean", "kl", "entropy", "loss", "lag"),
)


def metrics_file(training: StoredTraining) -> bytes:
    """Return the file's content, one line per step, which includes the measurement of the step's weights."""
    figures = {one.step: step_metrics(one) for one in training.steps}
    measured = {step: held_out_metrics(summary) for step, summary in training.held_out.items()}
    lines = [
        {"step": step, **figures.get(step, {}), **measured.get(step, {})} for step in sorted({*figures, *measured})
    ]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines).encode()


def step_metrics(step: StepFigures) -> dict[str, Any]:
    """Return the figures of a step except its number; unknown and non-finite values are None."""
    solved = [(group.solved, len(group.rewards)) for group in step.groups]
    tables: dict[str, Mapping[str, float]] = {"seconds": step.seconds, "tokens": step.tokens, "tinker": step.metrics}
    flat: dict[str, Any] = {
        **{name: getattr(step, name) for name in _DIRECT_FIGURES},
        "infra_share": infra_share(step),
        "groups": len(step.groups),
        "groups_constant": sum(group.constant for group in step.groups),
        "groups_always_solved": sum(0 < graded == good for good, graded in solved),
        "groups_never_solved": sum(graded > 0 and good == 0 for good, graded in solved),
        **{f"{table}/{name}": value for table, values in tables.items() for name, value in values.items()},
    }
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in flat.items()
    }


def held_out_metrics(summary: Summary) -> dict[str, Any]:
    """Return the headline figures of a measurement run."""
    rate = summary.headline
    return {
        "held_out/run": summary.run_id,
        "held_out/resolved_share": rate.rate if summary.valid else None,
        "held_out/low": rate.low if summary.valid else None,
        "held_out/high": rate.high if summary.valid else None,
        "held_out/resolved": rate.resolved,
        "held_out/graded": rate.graded,
        "held_out/total": rate.total,
    }


def infra_share(figures: StepFigures) -> float | None:
    """Return the share of rollouts that infrastructure failures ended; None without rollouts."""
    return figures.infra_failures / figures.rollouts if figures.rollouts else None
