"""Trajectories and sums whose numbers an older version did not check."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from swe_argo.steps.contracts.record import to_json
from swe_argo.steps.contracts.training import StepFigures
from swe_argo.steps.contracts.trajectory import FinalMetrics, Metrics, Trajectory, Usage, usage_of_trajectory
from tests.steps.agents.solved_units import agent_turn, trajectory


def strict(data: bytes) -> object:
    """What a reader that knows only JSON reads."""

    def refuse(name: str) -> object:
        raise ValueError(name)

    return json.loads(data, parse_constant=refuse)


def test_stored_usage_drops_bad_numbers() -> None:
    stored = {"calls": 1, "prompt_tokens": 10, "cached_tokens": 100_000, "completion_tokens": 1e30, "cost_usd": -0.3}
    read = Usage.model_validate(json.loads(json.dumps(stored)))
    assert read == Usage(calls=1, prompt_tokens=10, cached_tokens=10)
    assert (read + Usage(cost_usd=0.5)).cost_usd == 0.5
    assert Usage.model_validate({"cost_usd": nan}) == Usage()
    assert FinalMetrics(total_prompt_tokens=5, total_cost_usd=inf) == FinalMetrics(total_prompt_tokens=5)
    assert usage_of_trajectory(json.dumps({"extra": {"usage": {"calls": 2, "cost_usd": nan}}}).encode()) == Usage(
        calls=2
    )


def test_usage_is_never_negative() -> None:
    assert (Usage(cost_usd=0.3) - Usage(cost_usd=0.1 + 0.2)).cost_usd == 0.0


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_trajectory_is_valid_json(value: float) -> None:
    turn = agent_turn(3, [("run", {"timeout": [value], "command": "ls"}, "")], metrics=Metrics(cost_usd=value))
    whole = trajectory()
    whole = whole.model_copy(update={"steps": [*whole.steps, turn]})
    data = whole.to_bytes()
    strict(data)
    (call,) = Trajectory.from_bytes(data).steps[-1].tool_calls or []
    assert call.arguments == {"timeout": [None], "command": "ls"}


def test_to_json_writes_null_for_nan() -> None:
    assert to_json({"a": [nan, 1.5, (inf,)], "b": -inf}, separators=(",", ":")) == '{"a":[null,1.5,[null]],"b":null}'
    assert to_json({"a": [1]}, indent=1) == json.dumps({"a": [1]}, indent=1)


def test_diverged_step_figures_are_none() -> None:
    fields: dict[str, object] = dict.fromkeys(StepFigures.model_fields, 0)
    fields |= {"run": "r", "finished_at": "", "weights_used": {}, "groups": [], "seconds": {}, "tokens": {}}
    fields |= {"kl": nan, "entropy": 0.5, "loss": inf, "metrics": {"a": nan, "b": 1.0}}
    figures = StepFigures.model_validate(fields)
    assert (figures.kl, figures.entropy, figures.loss, figures.metrics) == (None, 0.5, None, {"b": 1.0})
    strict(figures.to_bytes())
