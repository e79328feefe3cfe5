from __future__ import annotations

from pathlib import Path

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.contracts.trajectory import (
    AgentInfo,
    Metrics,
    MetricsExtra,
    Result,
    StopReason,
    ToolCall,
    Trajectory,
    Usage,
)

INFO = AgentInfo(name="r2egym", version="1", model_name="m")
CALL = ToolCall(tool_call_id="c", function_name="execute_bash", arguments={"cmd": "ls"})


def recorder(file: Path | None, earlier: list[Trajectory] | None = None) -> Recorder:
    return Recorder(INFO, "run", "o__r-1", 2, file, earlier=earlier)


def read(file: Path) -> Trajectory:
    return Trajectory.from_bytes(file.read_bytes())


def test_file_follows_every_turn(tmp_path: Path) -> None:
    file = tmp_path / "try" / "trajectory.json"
    record = recorder(file)
    record.add_message("system", "s\ud800")
    assert [turn.message for turn in read(file).steps] == ["s\ud800"]
    record.add_message("user", "u")
    for number in range(5):
        record.usage = Usage(calls=number, cost_usd=number * 0.1)
        record.add_agent_turn("thought", [CALL], reasoning="r", metrics=Metrics(prompt_tokens=number))
        assert read(file).steps == record.turns
        record.add_observations([Result(source_call_id="c", content="o" * number)])
        assert read(file).steps == record.turns
        assert read(file).extra.usage == record.usage
    record.note = "over"
    record.set_usage(Usage(requests=9))
    trajectory = read(file)
    assert trajectory.extra.stop_reason is StopReason.INTERRUPTED
    assert (trajectory.extra.usage.requests, trajectory.notes) == (9, "over")
    assert trajectory.steps == record.trajectory(StopReason.FINISHED).steps
    assert [turn.step_id for turn in trajectory.steps] == list(range(1, 8))
    assert [turn.llm_call_count for turn in trajectory.steps[:3]] == [None, None, 1]
    assert [path.name for path in file.parent.iterdir()] == ["trajectory.json"]


def test_shorter_end_replaces_longer_one(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    record = recorder(file)
    record.add_message("user", "u")
    record.note = "long " * 1000
    record.set_usage(Usage(cost_usd=0.30000000000000004))
    record.note = ""
    record.set_usage(Usage(cost_usd=0.5))
    trajectory = read(file)
    assert (trajectory.notes, trajectory.extra.usage.cost_usd) == (None, 0.5)


def test_file_contains_earlier_attempts(tmp_path: Path) -> None:
    first = recorder(None)
    first.add_agent_turn("first", [], metrics=Metrics(prompt_tokens=3))
    first.usage = Usage(calls=1, prompt_tokens=3, seconds=1.5)
    file = tmp_path / "trajectory.json"
    second = recorder(file, [first.attempt_trajectory(StopReason.MALFORMED)])
    second.add_message("user", "second")
    second.usage = Usage(calls=2, prompt_tokens=4, seconds=0.5)
    second.add_agent_turn("answer", [])
    trajectory = read(file)
    assert [turn.message for turn in trajectory.steps] == ["second", "answer"]
    assert trajectory.extra.usage == Usage(calls=3, prompt_tokens=7, seconds=2.0)
    subagents = trajectory.subagent_trajectories or []
    assert [(subagent.extra.stop_reason, subagent.extra.usage.calls) for subagent in subagents] == [
        (StopReason.MALFORMED, 1)
    ]
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_steps == 3
    assert second.trajectory(StopReason.INTERRUPTED, trajectory.extra.seconds) == trajectory
    assert second.attempt_trajectory(StopReason.FINISHED).extra.usage.calls == 2


def test_file_has_side_conversations(tmp_path: Path) -> None:
    first = recorder(None)
    first.add_agent_turn("first", [])
    file, counted = tmp_path / "trajectory.json", list[int]()
    earlier = [first.attempt_trajectory(StopReason.MALFORMED)]
    record = Recorder(INFO, "run", "o__r-1", 2, file, earlier=earlier, watch=lambda _, number: counted.append(number))
    record.add_message("user", "what is a good title?")
    record.add_agent_turn("Mend a", [], metrics=Metrics(prompt_tokens=2, completion_tokens=1, cost_usd=0.5))
    record.move_turns_to_side_conversation()
    record.add_message("user", "mend it")
    helper = record.open_side_conversation(INFO)
    helper.add_message("user", "look for b")
    helper.add_agent_turn("", [CALL], metrics=Metrics(prompt_tokens=7, extra=MetricsExtra(requests=3)))
    helper.add_observations([Result(source_call_id="c", content="b.py")])
    record.usage = Usage(calls=2, requests=4, prompt_tokens=9, completion_tokens=1, cost_usd=0.5)
    record.add_agent_turn("done", [])
    record.printed = "bye"
    record.set_usage(record.usage + Usage(requests=1))
    trajectory = read(file)
    assert trajectory == record.trajectory(StopReason.INTERRUPTED, trajectory.extra.seconds)
    assert [turn.message for turn in trajectory.steps] == ["mend it", "done"]
    title, looked, attempt = trajectory.subagent_trajectories or []
    assert [part.extra.beside for part in (trajectory, title, looked, attempt)] == [False, True, True, False]
    assert (title.steps[0].message, title.extra.usage.cost_usd) == ("what is a good title?", 0.5)
    assert looked.steps[1].observation is not None
    assert (looked.extra.usage.requests, looked.extra.usage.prompt_tokens) == (3, 7)
    assert len({part.trajectory_id for part in (trajectory, title, looked)}) == 3
    assert (trajectory.extra.usage.requests, trajectory.extra.printed) == (5, "bye")
    assert trajectory.final_metrics is not None
    assert trajectory.final_metrics.total_steps == 7
    assert counted == [1, 2, 3]


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    """A SIGKILL at any moment leaves whole turns in it."""
    file = tmp_path / "trajectory.json"
    record = recorder(file)
    record.add_message("user", "u")
    for number in range(3):
        with file.open("rb") as before:
            record.add_agent_turn(f"turn {number}", [CALL])
            assert len(Trajectory.from_bytes(before.read()).steps) == number + 1
        with file.open("rb") as before:
            record.add_observations([Result(source_call_id="c", content="o" * 9000)])
            assert Trajectory.from_bytes(before.read()).steps[-1].observation is None


def test_earlier_turns_are_not_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    record = recorder(file)
    record.add_message("user", "u")
    for number in range(3):
        record.add_agent_turn(f"turn {number}", [CALL], metrics=Metrics(prompt_tokens=1))
        record.add_observations([Result(source_call_id="c", content="o" * 200)])
    before = list(record.turns)
    record.turns[:] = [None] * len(before)  # type: ignore[list-item] # whoever serializes one of these fails
    record.add_agent_turn("the last", [CALL], metrics=Metrics(prompt_tokens=1))
    record.add_observations([Result(source_call_id="c", content="o" * 200)])
    assert read(file).steps == [*before, record.turns[-1]]
