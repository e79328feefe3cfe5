"""Trajectories, usage and recorded calls, with numbers that an older version did not check."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import inf, nan

import pytest
from pydantic import ValidationError

from swe_argo.steps.contracts.record import to_json
from swe_argo.steps.contracts.recorded_calls import RecordedCall, RecordedToolCall, read_lines
from swe_argo.steps.contracts.training import StepFigures
from swe_argo.steps.contracts.trajectory import FinalMetrics, Metrics, Trajectory, Usage, usage_of_trajectory
from swe_argo.steps.contracts.unit_progress import last_action
from tests.steps.agents.solved_units import agent_turn, trajectory


def read_strictly(data: bytes) -> object:
    """Parse JSON without NaN and Infinity."""

    def refuse(name: str) -> object:
        raise ValueError(name)

    return json.loads(data, parse_constant=refuse)


def test_stored_usage_drops_bad_numbers() -> None:
    stored = {"calls": 1, "prompt_tokens": 10, "cached_tokens": 100_000, "completion_tokens": 1e30, "cost_usd": -0.3}
    usage = Usage.model_validate(json.loads(json.dumps(stored)))
    assert usage == Usage(calls=1, prompt_tokens=10, cached_tokens=10)
    assert (usage + Usage(cost_usd=0.5)).cost_usd == 0.5
    assert Usage.model_validate({"cost_usd": nan}) == Usage()
    assert FinalMetrics(total_prompt_tokens=5, total_cost_usd=inf) == FinalMetrics(total_prompt_tokens=5)
    data = json.dumps({"extra": {"usage": {"calls": 2, "cost_usd": nan}}}).encode()
    assert usage_of_trajectory(data) == Usage(calls=2)


def test_usage_is_never_negative() -> None:
    assert (Usage(cost_usd=0.3) - Usage(cost_usd=0.1 + 0.2)).cost_usd == 0.0


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_trajectory_is_valid_json(value: float) -> None:
    turn = agent_turn(3, [("run", {"timeout": [value], "command": "ls"}, "")], metrics=Metrics(cost_usd=value))
    whole = trajectory()
    data = whole.model_copy(update={"steps": [*whole.steps, turn]}).to_bytes()
    read_strictly(data)
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
    read_strictly(figures.to_bytes())


def test_recorded_call_becomes_turn() -> None:
    commands = ('{"command": "ls"}', '{"command": "ls')
    calls = [RecordedToolCall(id=f"c{n}", name="bash", arguments=text) for n, text in enumerate(commands)]
    call = RecordedCall(
        **{"try_name": "a", "attempt": 1, "request": "0" * 64, "text": "I look.", "calls": calls},
        metrics=Metrics(prompt_tokens=3, completion_token_ids=[1, 2]),
        **{"usage": Usage(), "spent": Usage(), "lost_s": 0.0, "seconds": 1.0},
        at=datetime(2026, 11, 22, 10, tzinfo=UTC),
    )
    turn = call.as_turn(2, ["a.py", None, "and this"])
    assert turn.tool_calls is not None
    assert [call.arguments for call in turn.tool_calls] == [{"command": "ls"}, {"": '{"command": "ls'}]
    assert turn.observation is not None
    results = [(result.source_call_id, result.content) for result in turn.observation.results]
    assert results == [("c0", "a.py"), ("c1", None), (None, "and this")]
    assert turn.metrics == Metrics(prompt_tokens=3)
    assert last_action(turn) == 'bash: {"command": "ls'
    assert call.as_turn(observations=["a.py"]).observation is not None
    assert last_action(call.model_copy(update={"calls": []}).as_turn()) == "I look."
    assert read_lines(call.to_line()) == [call]
    with pytest.raises(ValidationError):  # its time needs a zone
        read_lines(call.to_line().replace(b"10:00:00Z", b"10:00:00"))
