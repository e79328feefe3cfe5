from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents import replay
from swe_argo.steps.agents.formats.reading import read_row
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay import executor_for
from swe_argo.steps.agents.submission import extract, record_start
from swe_argo.steps.agents.tools.handlers import Session
from swe_argo.steps.agents.tools.toolsets import TOOLSETS
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, StopReason
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.local.backend import LocalBackend
from tests.steps.agents.machine import Box, git, shell
from tests.steps.agents.tasks import recorder

SHELLS = {"r2egym": "cmd", "openhands": "command", "sweagent": "command"}
EDITORS = {"r2egym": "file_editor", "openhands": "str_replace_editor", "sweagent": "str_replace_editor"}
FINISH = Action(tool="finish", arguments={})
ENDS = {
    "r2egym": ("finish", {"command": "submit"}),
    "openhands": ("finish", {"message": "x"}),
    "sweagent": ("submit", {}),
}


def bash(command: str, tool: str = "bash", observation: str | None = None) -> Action:
    return Action(tool=tool, arguments={"command": command}, observation=observation)


def edit(command: str, path: str, **more: Any) -> Action:
    return Action(tool="str_replace_editor", arguments={"command": command, "path": path, **more})


def restore(box: Box) -> None:
    shell(box.testbed, "git reset -q --hard; git clean -qfd")


def record_calls(scaffold: str, box: Box) -> Recording:
    """Return a recording of the scaffold that makes these calls."""
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    tools, session = TOOLSETS[scaffold], Session(box.sandbox, 20)
    actions = []
    for number, (name, arguments) in enumerate(calls(scaffold)):
        tool = tools.find(name)
        assert tool
        text = tools.perform(tool, arguments, session).text + f"\nSteps Remaining: {40 - number}"
        actions.append(Action(tool=name, arguments=arguments, observation=text))
    patch = extract(box.sandbox, start).patch.decode()
    assert "+a = 3" in patch
    restore(box)
    return Recording(source="test", scaffold=scaffold, actions=actions, patch=patch)


def perform(recording: Recording, box: Box, **spec: Any) -> tuple[StopReason, Replayed, Recorder]:
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    record = recorder()
    record.add_message("user", "an issue")
    reason = replay.perform(recording, box.sandbox, AgentSpec(name="replay", **spec), record, time.monotonic)
    return reason, replay.compare_with_recording(recording, record, extract(box.sandbox, start).patch), record


def results(record: Recorder) -> list[Result]:
    return [turn.observation.results[0] for turn in record.turns if turn.observation]


def run(box: Box, *actions: Action, **spec: Any) -> tuple[StopReason, list[tuple[str, int | None, bool]]]:
    """Return observation, exit code and whether it timed out, of each action."""
    record, recording = recorder(), Recording(source="test", actions=list(actions))
    reason = replay.perform(recording, box.sandbox, AgentSpec(name="replay", **spec), record, time.monotonic)
    extras = [(result.content or "", result.extra or ResultExtra()) for result in results(record)]
    return reason, [(text, extra.exit_code, extra.timed_out) for text, extra in extras]


def calls(scaffold: str) -> list[tuple[str, dict[str, Any]]]:
    shell, editor = SHELLS[scaffold], EDITORS[scaffold]
    change = {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 2", "new_str": "a = 3"}
    return [
        ("execute_bash", {shell: "ls -la; date; echo $$ >/dev/null; python3 -c 'print(object())'"}),
        ("execute_bash", {shell: "cd b && exit 3"}),
        ("execute_bash", {shell: "pwd; seq 1 200"}),
        (editor, {"command": "view", "path": "/testbed/a.py"}),
        (editor, change),
        (editor, change),
        (editor, {"command": "create", "path": "/testbed/n.py", "file_text": "one\n"}),
        (editor, {"command": "undo_edit", "path": "/testbed/a.py"}),
        (editor, change),
        ENDS[scaffold],
    ]


@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_replay_of_own_actions_matches(any_box: Box, scaffold: str) -> None:
    recording = record_calls(scaffold, any_box)
    reason, replayed, record = perform(recording, any_box)
    assert reason is StopReason.FINISHED
    assert replayed == Replayed(observations=len(recording.actions), differing=[], same_patch=True)
    assert record.agent.extra
    assert record.agent.extra.scaffold == scaffold


@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_replay_records_differences(box: Box, scaffold: str) -> None:
    recording = record_calls(scaffold, box)
    (box.testbed / "a.py").write_text("a = 7\n")
    _, replayed, record = perform(recording, box)
    assert replayed.same_patch is False
    assert {4, 5} <= set(replayed.differing)
    same_views = {2, 7} if scaffold == "sweagent" else {2, 7, 10}  # its review shows the changes
    assert not same_views & set(replayed.differing)
    observation = record.turns[4].observation
    assert observation
    extra = observation.results[0].extra
    assert extra
    assert extra.recorded == recording.actions[3].observation
    assert "a = 7" in (observation.results[0].content or "")


def test_skipped_actions_are_differences(box: Box) -> None:
    actions = [Action(tool="execute_bash", arguments={"cmd": "sleep 9"}, observation="x")] * 3
    recording = Recording(source="test", scaffold="r2egym", actions=actions)
    reason, replayed, record = perform(recording, box, timeout_s=0.4)
    assert reason is StopReason.TIMEOUT
    assert len(record.turns) < 4
    assert replayed == Replayed(observations=3, differing=[1, 2, 3], same_patch=None)


# -- mini-swe-agent


def test_mini_swe_agent_replay_matches(box: Box) -> None:
    pytest.importorskip("minisweagent", reason="needs the extra mini-swe-agent")
    actions = [
        bash("echo $PAGER; cd b; false", observation="<returncode>1</returncode>\n<output>\ncat\n</output>"),
        bash("basename $PWD", observation="<returncode>0</returncode>\n<output>\ntestbed\n</output>"),
        bash("seq 1 100000"),
        bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff"),
    ]
    recording = Recording(source="t", scaffold="mini-swe-agent", actions=actions, patch="diff\n")
    reason, replayed, record = perform(recording, box)
    assert reason is StopReason.FINISHED
    assert replayed == Replayed(observations=2, differing=[], same_patch=True)  # what it submitted
    observation = record.turns[3].observation
    assert observation
    assert 10_000 < len(observation.results[0].content or "") < 11_000


def test_only_sessions_keep_shell_state(any_box: Box) -> None:
    _, plain = run(any_box, bash("cd b; export A=1"), bash("basename $PWD; echo $A"))
    assert plain[1][0] == "testbed\n\n"
    _, session = run(
        any_box,
        bash("cd b; export A='it''s'", "bash_session"),
        bash("basename $PWD; echo $A; exit 4", "bash_session"),
        bash("basename $PWD", "bash_session"),
    )
    assert session[1][0] == "b\nits\n"
    assert session[1][1] == 4
    assert session[2][0] == "b\n"


def test_replay_ignores_step_limits(box: Box) -> None:
    reason, steps = run(box, bash("touch one"), bash("touch two"), max_steps=1, max_steps_absolute=1)
    assert reason is StopReason.FINISHED
    assert len(steps) == 2
    assert (box.testbed / "two").exists()


def test_slow_command_is_an_observation(box: Box) -> None:
    reason, steps = run(box, bash("echo begun; sleep 30"), bash("echo next"), command_timeout_s=2)
    assert reason is StopReason.FINISHED
    assert steps == [("begun\n", None, True), ("next\n", 0, False)]


def test_replay_decodes_and_cuts_output(box: Box) -> None:
    _, steps = run(box, bash(r"printf 'a\xffb'"), bash("head -c 1000000 /dev/zero | tr '\\0' x"))
    assert steps[0][0] == "a\N{REPLACEMENT CHARACTER}b"
    assert 60_000 < len(steps[1][0]) < 70_000
    assert "left out" in steps[1][0]


def test_actions_after_end_are_skipped(box: Box) -> None:
    submit = bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff")
    for end in (FINISH, Action(tool="submit", arguments={}), submit):
        assert run(box, end, bash("touch late"))[0] is StopReason.FINISHED
    assert not (box.testbed / "late").exists()
    recording = Recording(source="t", actions=[bash("true")], stop_reason=StopReason.ABSOLUTE_STEPS)
    assert perform(recording, box)[0] is StopReason.ABSOLUTE_STEPS


def test_every_kind_of_action_is_performed(any_box: Box) -> None:
    shells = ["bash", "execute_bash", "execute_command", "run_command"]
    _, steps = run(
        any_box,
        *(Action(tool=name, arguments={key: "echo x"}) for name in shells for key in ("command", "cmd")),
        edit("create", "/testbed/new/n.py", file_text="one\ntwo\n"),
        edit("str_replace", "new/n.py", old_str="two", new_str="three"),
        edit("insert", "/testbed/new/n.py", insert_line="1", new_str="inserted"),
        edit("view", "/testbed/new/n.py", view_range="[2, 3]"),
        edit("str_replace", "/testbed/new/n.py", old_str="one\n"),
        edit("undo_edit", "/testbed/new/n.py"),
        edit("create", "/testbed/a.py", file_text="x"),
        Action(tool="think", arguments={"thought": "hm"}),
        Action(tool="search", arguments={"search_term": "c = 1", "path": "/testbed/b"}),
    )
    *plain, (exists, failed, _), thought, search = steps
    assert [text for text, _, _ in plain[:8]] == ["x\n"] * 8
    assert [code for _, code, _ in plain] == [0] * 14
    assert plain[11][0].endswith(":\n     2\tinserted\n     3\tthree")
    assert (any_box.testbed / "new/n.py").read_text() == "one\ninserted\nthree\n"
    assert "File already exists" in exists
    assert failed == 1
    assert (any_box.testbed / "a.py").read_text() == "a = 2\n"
    assert thought == ("", None, False)
    assert "c = 1" in search[0]


def test_foreign_tools_are_not_compared(box: Box) -> None:
    _, replayed, record = perform(Recording(source="t", actions=[bash("ls", observation="other")]), box)
    assert replayed == Replayed(observations=0, differing=[], same_patch=None)
    assert record.agent.extra is None


@pytest.mark.parametrize("scaffold", [*TOOLSETS, "mini-swe-agent", None])
def test_impossible_call_is_observation(box: Box, scaffold: str | None) -> None:
    perform = executor_for(scaffold, box.sandbox, AgentSpec(name="replay"))
    impossible: list[tuple[str, dict[str, Any]]] = [
        ("frob", {}),
        ("execute_bash", {}),
        ("execute_bash", {"cmd": None, "command": None}),
        ("execute_bash", {"cmd": 3, "command": ["x"]}),
        ("execute_bash", {"cmd": "echo \0", "command": "echo \ud800"}),
        ("file_editor", {"command": "view", "path": 3}),
        ("str_replace_editor", {"command": "insert", "path": "/testbed/a.py", "new_str": "x", "insert_line": {}}),
        ("str_replace_editor", {"command": ["x"], "path": "/testbed/a.py"}),
        ("str_replace_editor", {"command": "view", "path": "/testbed/\0"}),
        ("str_replace_editor", {"command": "create", "path": "/testbed/\ud800", "file_text": "x"}),
        ("search", {"search_term": None}),
        ("search", {"search_term": "a\0", "path": "\ud800"}),
    ]
    for tool, arguments in impossible:
        timeout_s = 1.0 if scaffold == "mini-swe-agent" else 5.0  # its shell knows a program `view`, which waits
        assert perform(Action(tool=tool, arguments=arguments), timeout_s).observed.text, (tool, arguments)


def test_mini_swe_agent_uses_raw_output(box: Box) -> None:
    answer = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "echo hi; exit 4"}]}}
    output = {"role": "user", "content": "in words of its own", "extra": {"raw_output": "hi\n", "returncode": 4}}
    info = {"exit_status": "Submitted", "submission": ""}
    row = {"info": info, "messages": [answer, output], "instance_id": "a__b-1"}
    recorded = read_row(row | {"trajectory_format": "mini-swe-agent-1.1"})
    assert recorded
    recording = Recording(source="t", scaffold=recorded.scaffold, actions=recorded.actions, patch=recorded.patch)
    assert perform(recording, box)[1] == Replayed(observations=1, differing=[], same_patch=None)
    changed = recording.actions[0].model_copy(update={"arguments": {"command": "echo ho; exit 4"}})
    assert perform(recording.model_copy(update={"actions": [changed]}), box)[1].differing == [1]


def test_lost_sandbox_keeps_turns(box: Box) -> None:
    record = recorder()
    recording = Recording(source="test", actions=[bash("echo one"), bash("echo two")])

    def clock() -> float:
        if len(record.turns) == 1:
            LocalBackend(Path(), isolated=False).destroy(box.sandbox)
        return time.monotonic()

    with pytest.raises(InfraError):
        replay.perform(recording, box.sandbox, AgentSpec(name="replay"), record, clock)
    assert [result.content for result in results(record)] == ["one\n"]
