from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.formats import mini_swe_agent, read_row
from swe_argo.steps.agents.mini_swe_agent import library
from swe_argo.steps.agents.patch import extract, record_start
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay import agent
from swe_argo.steps.agents.replay.actions import performer_of
from swe_argo.steps.agents.tools.session import Session
from swe_argo.steps.agents.tools.toolsets import TOOLSETS
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason
from swe_argo.steps.errors import ConfigError
from tests.steps.agents.machine import Box, git

SHELLS = {"r2egym": "cmd", "openhands": "command", "sweagent": "command"}
EDITORS = {"r2egym": "file_editor", "openhands": "str_replace_editor", "sweagent": "str_replace_editor"}
ENDS = {
    "r2egym": ("finish", {"command": "submit"}),
    "openhands": ("finish", {"message": "x"}),
    "sweagent": ("submit", {}),
}


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


def record(scaffold: str, box: Box) -> Recording:
    """What an agent of the scaffold that makes these calls is shown."""
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    tools, session = TOOLSETS[scaffold], Session(box.sandbox, 20)
    actions = []
    for number, (name, arguments) in enumerate(calls(scaffold)):
        tool = tools.find(name)
        assert tool
        text = tools.perform(tool, arguments, session).text + f"\nSteps Remaining: {40 - number}"
        actions.append(Action(tool=name, arguments=arguments, observation=text))
    patch = extract(box.sandbox, start).data.decode()
    assert "+a = 3" in patch
    git(box.testbed, "reset", "-q", "--hard")
    git(box.testbed, "clean", "-qfd")
    return Recording(source="test", scaffold=scaffold, actions=actions, patch=patch)


def replay_recording(recording: Recording, box: Box, **spec: Any) -> tuple[StopReason, Replayed, Recorder]:
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    recorder = Recorder(AgentInfo(name="replay", version="1"), "run", "a__b-1", 1)
    recorder.add_message("user", "an issue")
    reason = agent.perform(recording, box.sandbox, AgentSpec(name="replay", **spec), recorder, time.monotonic)
    return reason, agent.compare_with_recording(recording, recorder, extract(box.sandbox, start).data), recorder


@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_replay_of_own_actions_matches(any_box: Box, scaffold: str) -> None:
    recording = record(scaffold, any_box)
    reason, replayed, recorder = replay_recording(recording, any_box)
    assert reason is StopReason.FINISHED
    assert replayed == Replayed(observations=len(recording.actions), differing=[], same_patch=True)
    assert recorder.agent.extra
    assert recorder.agent.extra.scaffold == scaffold


@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_replay_records_differences(box: Box, scaffold: str) -> None:
    recording = record(scaffold, box)
    (box.testbed / "a.py").write_text("a = 7\n")
    _, replayed, recorder = replay_recording(recording, box)
    assert replayed.same_patch is False
    assert {4, 5} <= set(replayed.differing)
    same_views = {2, 7} if scaffold == "sweagent" else {2, 7, 10}  # its review shows the changes
    assert not same_views & set(replayed.differing)
    observation = recorder.turns[4].observation
    assert observation
    extra = observation.results[0].extra
    assert extra
    assert extra.recorded == recording.actions[3].observation
    assert "a = 7" in (observation.results[0].content or "")


def test_skipped_actions_are_differences(box: Box) -> None:
    actions = [Action(tool="execute_bash", arguments={"cmd": "sleep 9"}, observation="x")] * 3
    recording = Recording(source="test", scaffold="r2egym", actions=actions)
    reason, replayed, recorder = replay_recording(recording, box, timeout_s=0.4)
    assert reason is StopReason.TIMEOUT
    assert len(recorder.turns) < 4
    assert replayed == Replayed(observations=3, differing=[1, 2, 3], same_patch=None)


def test_foreign_tools_are_not_compared(box: Box) -> None:
    recording = Recording(source="t", actions=[Action(tool="bash", arguments={"command": "ls"}, observation="other")])
    _, replayed, recorder = replay_recording(recording, box)
    assert replayed == Replayed(observations=0, differing=[], same_patch=None)
    assert recorder.agent.extra is None


def test_replay_keeps_stop_reason(box: Box) -> None:
    actions = [Action(tool="execute_bash", arguments={"cmd": "true"})]
    recording = Recording(source="t", scaffold="r2egym", actions=actions, stop_reason=StopReason.ABSOLUTE_STEPS)
    assert replay_recording(recording, box)[0] is StopReason.ABSOLUTE_STEPS


@pytest.mark.parametrize("scaffold", [*TOOLSETS, "mini-swe-agent", None])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
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
    ],
)
def test_impossible_call_is_observation(box: Box, scaffold: str | None, tool: str, arguments: dict[str, Any]) -> None:
    perform = performer_of(scaffold, box.sandbox, AgentSpec(name="replay"))
    assert perform(Action(tool=tool, arguments=arguments), 5.0).observed.text


# -- mini-swe-agent --------------------------------------------------------------------------------------------------


def bash(text: str, observation: str | None = None) -> Action:
    return Action(tool="bash", arguments={"command": text}, observation=observation)


def test_mini_swe_agent_replay_matches(box: Box) -> None:
    try:
        library.load()
    except ConfigError as missing:
        pytest.skip(str(missing))
    actions = [
        bash("echo $PAGER; cd b; false", "<returncode>1</returncode>\n<output>\ncat\n</output>"),
        bash("basename $PWD", "<returncode>0</returncode>\n<output>\ntestbed\n</output>"),
        bash("seq 1 100000"),
        bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff"),
    ]
    recording = Recording(source="t", scaffold="mini-swe-agent", actions=actions, patch="diff\n")
    reason, replayed, recorder = replay_recording(recording, box)
    assert reason is StopReason.FINISHED
    assert replayed == Replayed(observations=2, differing=[], same_patch=True)  # what it submitted
    observation = recorder.turns[3].observation
    assert observation
    assert 10_000 < len(observation.results[0].content or "") < 11_000


def test_mini_swe_agent_uses_raw_output(box: Box, tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "echo hi; exit 4"}]}}
    output = {"role": "user", "content": "in words of its own", "extra": {"raw_output": "hi\n", "returncode": 4}}
    row = {
        "info": {"exit_status": "Submitted", "submission": ""},
        "messages": [answer, output],
        "instance_id": "a__b-1",
    }
    recorded = read_row(row | {"trajectory_format": mini_swe_agent.FORMAT})
    assert recorded
    recording = Recording(source="t", scaffold=recorded.scaffold, actions=recorded.actions, patch=recorded.patch)
    assert replay_recording(recording, box)[1] == Replayed(observations=1, differing=[], same_patch=None)
    changed = recording.actions[0].model_copy(update={"arguments": {"command": "echo ho; exit 4"}})
    assert replay_recording(recording.model_copy(update={"actions": [changed]}), box)[1].differing == [1]
