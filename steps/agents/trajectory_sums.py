"""Sums over the conversations and attempts of one solve."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.record import to_json
from swe_argo.steps.contracts.trajectory import FinalMetrics, MetricsExtra, Trajectory, Turn, Usage


def usage_of(turns: list[Turn]) -> Usage:
    """Return the usage of the model calls in these turns."""
    model_turns = [(turn.metrics, turn.metrics.extra or MetricsExtra()) for turn in turns if turn.metrics is not None]
    costs = [metrics.cost_usd for metrics, _ in model_turns if metrics.cost_usd is not None]
    return Usage(
        calls=len(model_turns),
        requests=sum(extra.requests for _, extra in model_turns),
        prompt_tokens=sum(metrics.prompt_tokens or 0 for metrics, _ in model_turns),
        cached_tokens=sum(metrics.cached_tokens or 0 for metrics, _ in model_turns),
        completion_tokens=sum(metrics.completion_tokens or 0 for metrics, _ in model_turns),
        reasoning_tokens=sum(extra.reasoning_tokens or 0 for _, extra in model_turns),
        cost_usd=sum(costs) if costs else None,
        seconds=round(sum(extra.seconds for _, extra in model_turns), 3),
    )


def embed_trajectories(trajectory: Trajectory, added: list[Trajectory]) -> Trajectory:
    """Return the trajectory with ``added`` ones of its solve embedded, and their sums added to its own."""
    if not added:
        return trajectory
    within = [*(trajectory.subagent_trajectories or []), *added]
    return add_sums(trajectory, added).model_copy(update={"subagent_trajectories": within})


def add_sums(trajectory: Trajectory, added: list[Trajectory]) -> Trajectory:
    """Return the trajectory with the sums of ``added`` ones added to its own."""
    usage = sum((other.extra.usage for other in added), trajectory.extra.usage)
    own = trajectory.final_metrics.total_steps if trajectory.final_metrics else None
    # A trajectory without final metrics counts by its turns.
    steps = (own or 0) + sum(
        (other.final_metrics and other.final_metrics.total_steps) or len(other.steps) for other in added
    )
    parts = [part.extra.inherited for part in (trajectory, *added) if part.extra.inherited is not None]
    inherited = sum(parts, Usage()) if parts else None
    extra = trajectory.extra.model_copy(update={"usage": usage, "inherited": inherited})
    return trajectory.model_copy(update={"final_metrics": final_metrics(usage, steps), "extra": extra})


def final_metrics(usage: Usage, steps: int) -> FinalMetrics:
    """Return the sums in ATIF's form."""
    return FinalMetrics(
        total_prompt_tokens=usage.prompt_tokens,
        total_completion_tokens=usage.completion_tokens,
        total_cached_tokens=usage.cached_tokens,
        total_cost_usd=usage.cost_usd,
        total_steps=steps,
    )


def dump_trajectory(trajectory: Trajectory) -> bytes:
    """Return the trajectory as JSON for embedding in another, without fields that are None."""
    return to_compact_json(trajectory.model_dump(mode="json", exclude_none=True))


def to_compact_json(value: Any) -> bytes:
    """Return JSON without spaces."""
    return to_json(value, separators=(",", ":")).encode()
