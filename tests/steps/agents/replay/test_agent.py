from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay import agent
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.recording import Action, Recording
from swe_argo.steps.contracts.trajectory import AgentInfo, ResultExtra, StopReason
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.local.backend import LocalBackend
from tests.steps.agents.machine import Box


def bash(command: str, tool: str = "bash", **more: Any) -> Action:
    return Action(tool=tool, arguments={"command": command, **more})


def edit(command: str, path: str, **more: Any) -> Action:
    return Action(tool="str_replace_editor", arguments={"command": command, "path": path, **more})


FINISH = Action(tool="finish", arguments={})


@dataclass(frozen=True)
class StepResult:
    """What came of one action."""

    tool: str
    observation: str
    exit_code: int | None
    timed_out: bool


def recorder() -> Recorder:
    return Recorder(AgentInfo(name="replay", version="1"), "run", "a__b-1", 1)


def step_results(record: Recorder) -> list[StepResult]:
    steps = []
    for turn in record.turns:
        assert turn.tool_calls
        assert turn.observation
        (call,), (result,) = turn.tool_calls, turn.observation.results
        extra = result.extra or ResultExtra()
        steps.append(StepResult(call.function_name, result.content or "", extra.exit_code, extra.timed_out))
    return steps


def run(box: Box, *actions: Action, **spec: Any) -> tuple[StopReason, list[StepResult]]:
    record = recorder()
    recording = Recording(source="test", actions=list(actions))
    reason = agent.perform(recording, box.sandbox, AgentSpec(name="replay", **spec), record, time.monotonic)
    return reason, step_results(record)


def test_commands_run_in_repository(any_box: Box) -> None:
    reason, steps = run(any_box, bash("echo out; echo err >&2; echo 'a = 9' > a.py; exit 3"), FINISH)
    assert reason is StopReason.FINISHED
    assert (any_box.testbed / "a.py").read_text() == "a = 9\n"
    assert [step.observation for step in steps] == ["out\nerr\n", ""]
    assert [step.exit_code for step in steps] == [3, None]
    assert steps[0].tool == "bash"


@pytest.mark.parametrize("tool", ["bash", "execute_bash", "execute_command", "run_command"])
@pytest.mark.parametrize("key", ["command", "cmd"])
def test_shell_tool_has_many_names(box: Box, tool: str, key: str) -> None:
    run(box, Action(tool=tool, arguments={key: "echo x > made"}))
    assert (box.testbed / "made").exists()


def test_only_sessions_keep_shell_state(any_box: Box) -> None:
    _, plain = run(any_box, bash("cd b; export A=1"), bash("basename $PWD; echo $A"))
    assert plain[1].observation == "testbed\n\n"
    _, session = run(
        any_box,
        bash("cd b; export A='it''s'", "bash_session"),
        bash("basename $PWD; echo $A; exit 4", "bash_session"),
        bash("basename $PWD", "bash_session"),
    )
    assert session[1].observation == "b\nits\n"
    assert session[1].exit_code == 4
    assert session[2].observation == "b\n"


def test_actions_after_end_are_skipped(box: Box) -> None:
    for end in (FINISH, Action(tool="submit", arguments={})):
        assert run(box, end, bash("touch late"))[0] is StopReason.FINISHED
    submit = bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff")
    assert run(box, submit, bash("touch late"))[0] is StopReason.FINISHED
    assert not (box.testbed / "late").exists()


def test_replay_ignores_step_limits(box: Box) -> None:
    reason, steps = run(box, bash("touch one"), bash("touch two"), max_steps=1, max_steps_absolute=1)
    assert reason is StopReason.FINISHED
    assert len(steps) == 2
    assert (box.testbed / "two").exists()


def test_slow_command_is_an_observation(box: Box) -> None:
    reason, steps = run(box, bash("echo begun; sleep 30"), bash("echo next"), command_timeout_s=3)
    assert reason is StopReason.FINISHED
    assert steps[0].timed_out
    assert steps[0].exit_code is None
    assert steps[0].observation == "begun\n"
    assert steps[1].observation == "next\n"


def test_timeout_bounds_whole_replay(box: Box) -> None:
    reason, steps = run(box, bash("sleep 30"), bash("touch late"), timeout_s=3)
    assert reason is StopReason.TIMEOUT
    assert steps[0].timed_out
    assert not (box.testbed / "late").exists()


def test_replay_decodes_and_cuts_output(box: Box) -> None:
    _, steps = run(box, bash(r"printf 'a\xffb'"), bash("head -c 1000000 /dev/zero | tr '\\0' x"))
    assert steps[0].observation == "a\N{REPLACEMENT CHARACTER}b"
    assert 60_000 < len(steps[1].observation) < 70_000
    assert "left out" in steps[1].observation


def test_thoughts_are_counted_not_run(box: Box) -> None:
    _, steps = run(box, Action(tool="think", arguments={"thought": "hm"}))
    assert [(step.observation, step.exit_code) for step in steps] == [("", None)]


def test_search_reads_files(any_box: Box) -> None:
    _, steps = run(any_box, Action(tool="search", arguments={"search_term": "c = 1", "path": "/testbed/b"}))
    assert "c = 1" in steps[0].observation


def test_edits_are_applied(any_box: Box) -> None:
    _, steps = run(
        any_box,
        edit("create", "/testbed/new/n.py", file_text="one\ntwo\n"),
        edit("str_replace", "/testbed/new/n.py", old_str="two", new_str="three"),
        edit("insert", "/testbed/new/n.py", insert_line="1", new_str="inserted"),
        edit("view", "/testbed/new/n.py", view_range="[2, 3]"),
        edit("str_replace", "new/n.py", old_str="one\n"),
    )
    assert [step.exit_code for step in steps] == [0] * 5
    assert steps[3].observation.endswith(":\n     2\tinserted\n     3\tthree")
    assert (any_box.testbed / "new/n.py").read_text() == "inserted\nthree\n"


def test_undo_reverts_edits(box: Box) -> None:
    _, steps = run(
        box,
        edit("str_replace", "/testbed/a.py", old_str="2", new_str="3"),
        edit("str_replace", "/testbed/a.py", old_str="3", new_str="4"),
        edit("undo_edit", "/testbed/a.py"),
        edit("undo_edit", "/testbed/a.py"),
        edit("undo_edit", "/testbed/a.py"),
    )
    assert (box.testbed / "a.py").read_text() == "a = 2\n"
    assert [step.exit_code for step in steps] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (edit("create", "/testbed/a.py", file_text="x"), "File already exists"),
        (edit("str_replace", "/testbed/a.py", old_str="nowhere", new_str="x"), "did not appear"),
        (edit("str_replace", "/testbed/b/c.py", old_str="c", new_str="x"), "Multiple occurrences"),
        (edit("str_replace", "/testbed/none.py", old_str="a", new_str="x"), "does not exist"),
        (edit("str_replace", "/testbed/b", old_str="a", new_str="x"), "is a directory"),
        (edit("create", "/testbed/a.py/x", file_text="x"), "/testbed/a.py/x cannot be written"),
        (edit("insert", "/testbed/a.py", insert_line=99, new_str="x"), "from 0 to"),
        (edit("insert", "/testbed/a.py", insert_line="x", new_str="x"), "a number"),
        (edit("frobnicate", "/testbed/a.py"), "Unknown command"),
        (edit("view", ""), "`path` is missing"),
        (edit("create", "/testbed/y", file_text="\ud800"), "surrogate"),
    ],
)
def test_failed_edit_changes_nothing(any_box: Box, action: Action, reason: str) -> None:
    (any_box.testbed / "b/c.py").write_text("c c\n")
    before = {path: path.read_bytes() for path in any_box.testbed.rglob("*.py")}
    _, steps = run(any_box, action)
    assert steps[0].exit_code == 1
    assert reason in steps[0].observation
    assert {path: path.read_bytes() for path in any_box.testbed.rglob("*.py")} == before


@pytest.mark.parametrize("any_box", ["bubblewrap"], indirect=True)
def test_unwritable_path_is_observation(any_box: Box) -> None:
    _, steps = run(any_box, edit("create", "/usr/bin/x", file_text="x"), bash("echo on"))
    assert "/usr/bin/x cannot be written" in steps[0].observation
    assert steps[1].observation == "on\n"


def test_edits_keep_other_bytes(box: Box) -> None:
    (box.testbed / "latin.txt").write_bytes(b"caf\xe9\r\nold\r\nmore\r\n")
    run(box, edit("str_replace", "/testbed/latin.txt", old_str="old\nmore", new_str="new\nmore"))
    assert (box.testbed / "latin.txt").read_bytes() == b"caf\xe9\r\nnew\r\nmore\r\n"


def test_view_lists_folder(any_box: Box) -> None:
    _, steps = run(any_box, edit("view", "/testbed"))
    assert "/testbed/b/c.py\n" in steps[0].observation


def test_lost_sandbox_keeps_turns(box: Box) -> None:
    record = recorder()
    recording = Recording(source="test", actions=[bash("echo one"), bash("echo two")])

    def clock() -> float:
        if len(record.turns) == 1:
            LocalBackend(Path(), isolated=False).destroy(box.sandbox)
        return time.monotonic()

    with pytest.raises(InfraError):
        agent.perform(recording, box.sandbox, AgentSpec(name="replay"), record, clock)
    assert [step.observation for step in step_results(record)] == ["one\n"]
