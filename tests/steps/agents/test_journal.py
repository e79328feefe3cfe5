from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swe_argo.steps.agents.journal import Journal
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


def journal(file: Path | None, earlier: list[Trajectory] | None = None) -> Journal:
    return Journal(INFO, "run", "o__r-1", 2, file, earlier=earlier)


def read(file: Path) -> Trajectory:
    return Trajectory.from_bytes(file.read_bytes())


def test_the_file_is_the_trajectory_after_every_turn(tmp_path: Path) -> None:
    file = tmp_path / "try" / "trajectory.json"
    kept = journal(file)
    kept.add_message("system", "s\ud800")
    assert [turn.message for turn in read(file).steps] == ["s\ud800"]
    kept.add_message("user", "u")
    for number in range(5):
        kept.usage = Usage(calls=number, cost_usd=number * 0.1)
        kept.add_agent_turn("thought", [CALL], reasoning="r", metrics=Metrics(prompt_tokens=number))
        assert read(file).steps == kept.turns
        kept.add_observations([Result(source_call_id="c", content="o" * number)])
        assert read(file).steps == kept.turns
        assert read(file).extra.usage == kept.usage
    kept.note = "over"
    kept.set_usage(Usage(requests=9))
    found = read(file)
    assert found.extra.stop_reason is StopReason.INTERRUPTED
    assert (found.extra.usage.requests, found.notes) == (9, "over")
    assert found.steps == kept.trajectory(StopReason.FINISHED).steps
    assert [turn.step_id for turn in found.steps] == list(range(1, 8))
    assert [turn.llm_call_count for turn in found.steps[:3]] == [None, None, 1]
    assert [path.name for path in file.parent.iterdir()] == ["trajectory.json"]


def test_a_shorter_end_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    kept = journal(file)
    kept.add_message("user", "u")
    kept.note = "long " * 1000
    kept.set_usage(Usage(cost_usd=0.30000000000000004))
    kept.note = ""
    kept.set_usage(Usage(cost_usd=0.5))
    kept.add_agent_turn("next", [])
    assert read(file).notes is None
    assert [turn.message for turn in read(file).steps] == ["u", "next"]


def test_what_nobody_keeps_in_a_file_is_in_memory() -> None:
    kept = journal(None)
    assert [turn.message for turn in kept.trajectory(StopReason.FINISHED).steps] == [""]
    kept.add_agent_turn("m", [])
    kept.set_usage(Usage(requests=1))
    assert kept.trajectory(StopReason.TIMEOUT, 1.5).extra.seconds == 1.5


def test_earlier_attempts_stand_in_the_file_with_it(tmp_path: Path) -> None:
    first = journal(None)
    first.add_agent_turn("first", [], metrics=Metrics(prompt_tokens=3))
    first.usage = Usage(calls=1, prompt_tokens=3, seconds=1.5)
    file = tmp_path / "trajectory.json"
    second = journal(file, [first.alone(StopReason.MALFORMED)])
    second.add_message("user", "second")
    second.usage = Usage(calls=2, prompt_tokens=4, seconds=0.5)
    second.add_agent_turn("answer", [])
    found = read(file)
    assert [turn.message for turn in found.steps] == ["second", "answer"]
    assert found.extra.usage == Usage(calls=3, prompt_tokens=7, seconds=2.0)
    others = found.subagent_trajectories or []
    assert [(other.extra.stop_reason, other.extra.usage.calls) for other in others] == [(StopReason.MALFORMED, 1)]
    assert found.final_metrics is not None
    assert found.final_metrics.total_steps == 3
    assert second.trajectory(StopReason.INTERRUPTED, found.extra.seconds) == found
    assert second.alone(StopReason.FINISHED).extra.usage.calls == 2


def test_further_conversations_stand_in_the_file_with_their_attempt(tmp_path: Path) -> None:
    first = journal(None)
    first.add_agent_turn("first", [])
    file, counted = tmp_path / "trajectory.json", list[int]()
    kept = Journal(
        INFO,
        "run",
        "o__r-1",
        2,
        file,
        earlier=[first.alone(StopReason.MALFORMED)],
        watch=lambda _, number: counted.append(number),
    )
    kept.add_message("user", "what is a good title?")
    kept.add_agent_turn("Mend a", [], metrics=Metrics(prompt_tokens=2, completion_tokens=1, cost_usd=0.5))
    kept.set_aside()
    kept.add_message("user", "mend it")
    helper = kept.open_beside(INFO)
    helper.add_message("user", "look for b")
    helper.add_agent_turn("", [CALL], metrics=Metrics(prompt_tokens=7, extra=MetricsExtra(requests=3)))
    helper.add_observations([Result(source_call_id="c", content="b.py")])
    kept.usage = Usage(calls=2, requests=4, prompt_tokens=9, completion_tokens=1, cost_usd=0.5)
    kept.add_agent_turn("done", [])
    kept.printed = "bye"
    kept.set_usage(kept.usage + Usage(requests=1))
    found = read(file)
    assert found == kept.trajectory(StopReason.INTERRUPTED, found.extra.seconds)
    assert [turn.message for turn in found.steps] == ["mend it", "done"]
    title, looked, attempt = found.subagent_trajectories or []
    assert [one.extra.beside for one in (found, title, looked, attempt)] == [False, True, True, False]
    assert (title.steps[0].message, title.extra.usage.cost_usd) == ("what is a good title?", 0.5)
    assert looked.steps[1].observation is not None
    assert (looked.extra.usage.requests, looked.extra.usage.prompt_tokens) == (3, 7)
    assert len({one.trajectory_id for one in (found, title, looked)}) == 3
    assert (found.extra.usage.requests, found.extra.printed) == (5, "bye")
    assert found.final_metrics is not None
    assert found.final_metrics.total_steps == 7
    assert counted == [1, 2, 3]


WRITER = """
import sys
from pathlib import Path
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.contracts.trajectory import AgentInfo, Result, ToolCall, Usage
kept = Journal(AgentInfo(name="a", version="1"), "run", "i", 1, Path(sys.argv[1]))
kept.add_message("user", "begin")
print("ready", flush=True)
number = 0
while True:
    number += 1
    kept.usage = Usage(calls=number)
    kept.add_agent_turn(f"turn {number}", [ToolCall(tool_call_id="c", function_name="f", arguments={})])
    kept.add_observations([Result(source_call_id="c", content="x" * (number % 300))])
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.011, 0.053, 0.17])
def test_a_process_that_is_killed_leaves_what_it_had(tmp_path: Path, delay_s: float) -> None:
    file = tmp_path / "trajectory.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(timeout=30)
    finally:
        writer.kill()
        writer.communicate()
    found = read(file)
    assert [turn.step_id for turn in found.steps] == list(range(1, len(found.steps) + 1))
    assert found.extra.usage.calls in (len(found.steps) - 1, len(found.steps))


def test_a_file_is_never_written_to_under_its_name(tmp_path: Path) -> None:
    """So there is no moment at which a SIGKILL leaves half a turn in it."""
    file = tmp_path / "trajectory.json"
    kept = journal(file)
    kept.add_message("user", "u")
    for number in range(3):
        with file.open("rb") as before:
            kept.add_agent_turn(f"turn {number}", [CALL])
            assert len(Trajectory.from_bytes(before.read()).steps) == number + 1
        with file.open("rb") as before:
            kept.add_observations([Result(source_call_id="c", content="o" * 9000)])
            assert Trajectory.from_bytes(before.read()).steps[-1].observation is None


def test_turns_before_the_last_are_not_serialized_again(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    kept = journal(file)
    kept.add_message("user", "u")
    for number in range(3):
        kept.add_agent_turn(f"turn {number}", [CALL], metrics=Metrics(prompt_tokens=1))
        kept.add_observations([Result(source_call_id="c", content="o" * 200)])
    before = list(kept.turns)
    kept.turns[:] = [None] * len(before)  # type: ignore[list-item] # whoever serializes one of these fails
    kept.add_agent_turn("the last", [CALL], metrics=Metrics(prompt_tokens=1))
    kept.add_observations([Result(source_call_id="c", content="o" * 200)])
    assert read(file).steps == [*before, kept.turns[-1]]


def test_a_hundred_turns_take_little_beside_their_observations(tmp_path: Path) -> None:
    """With token ids and logprobs of a conversation that grows to 60,000 tokens, each id recorded once."""
    file = tmp_path / "trajectory.json"
    kept = journal(file)
    kept.add_message("user", "u")
    observed = 0
    for number in range(100):
        new = [100_000 + number] * 400
        extra = MetricsExtra(seconds=1.234, finish_reason="tool_calls", request_id="r" * 32, shared_prompt_ids=number)
        metrics = Metrics(
            prompt_tokens=600 * number,
            completion_tokens=200,
            prompt_token_ids=new,
            completion_token_ids=new[:200],
            logprobs=[-0.0001234567 * place for place in range(200)],
            extra=extra,
        )
        kept.add_agent_turn("thought " * 100, [CALL], reasoning="because " * 100, metrics=metrics)
        text = f"{number} " * 2000
        observed += len(json.dumps(text))
        kept.add_observations([Result(source_call_id="c", content=text)])
    size = len(kept.trajectory(StopReason.FINISHED).to_bytes())
    assert size - observed <= 3_000_000
    assert file.stat().st_size - observed <= 3_000_000
