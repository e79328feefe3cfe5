from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.agents.formats.reading import Recordings, read
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.contracts.recording import Action, Recording
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason, ToolCall
from swe_argo.steps.errors import ConfigError
from tests.steps.datasets.sample_rows import PROPERTY

ID = "django__django-11099"


def own(instance: str = ID, command: str = "ls", reason: StopReason = StopReason.FINISHED) -> bytes:
    recorder = Recorder(AgentInfo(name="replay", version="1", model_name="m/own"), "one", instance, 1)
    recorder.add_message("user", "an issue")
    recorder.add_agent_turn("", [ToolCall(tool_call_id="c", function_name="bash", arguments={"command": command})])
    return recorder.trajectory(reason).to_bytes()


def mini(version: int = 2) -> dict[str, Any]:
    """Return a file of mini-swe-agent 2.4.6 (messages with extra.actions), or of its version 1."""
    info = {"config": {"model": {"model_name": "m/mini"}}, "exit_status": "Submitted", "submission": "diff"}
    answer: dict[str, Any] = {"role": "assistant", "content": "I look.\n\n```bash\nls -la\n```\n"}
    if version == 2:
        answer["extra"] = {"actions": [{"command": "ls -la", "tool_call_id": "1"}], "cost": 0.1}
    more_messages = [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "no command"}]
    row = {"info": info, "messages": [{"role": "system", "content": "s"}, answer, *more_messages]}
    return {**row, "trajectory_format": "mini-swe-agent-1.1", "instance_id": ID} if version == 2 else row


def block(name: str, **arguments: str) -> str:
    inner = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in arguments.items())
    return f"<function={name}>\n{inner}</function>"


def r2e(**more: Any) -> dict[str, Any]:
    edit = {"command": "str_replace", "path": "/testbed/a.py", "old_str": "\na < b\n", "new_str": "a > b"}
    steps = [
        {"step_idx": 0, "thought": "t", "action": block("execute_bash", cmd="ls")},
        {"step_idx": 1, "action": block("file_editor", **edit), "observation": "ok"},
        {"step_idx": 2, "action": ""},
        {"action": block("execute_bash", cmd="git stash"), "observation": "Bash command 'git' is not allowed."},
        {"action": block("finish", command="submit")},
    ]
    image = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
    return {"trajectory_steps": steps, "docker_image": image, "agent_args": {"llm_name": "m/r2e"}, "ds": {}} | more


def event(action: str, id: int | None = None, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "source": "agent", "action": action, "args": arguments}


def openhands(**more: Any) -> dict[str, Any]:
    place = "/workspace/django__django__3.0"
    history = [
        event("system", 0, content="s"),
        event("message", 1, content="fix it") | {"source": "user"},
        event("run", 2, command=f"cd {place} && ls", is_input="false"),
        {"id": 3, "source": "agent", "observation": "run", "content": "x", "extras": {}},
        event("run", 4, command="C-c", is_input="true"),
        event("read", 5, path=f"{place}/a.py"),
        event("edit", path=f"{place}/a.py", command="str_replace", old_str="a", new_str="b"),
        event("think", thought="t"),
        event("finish"),
    ]
    return {"instance_id": ID, "history": history, "metadata": {"llm_config": {"model": "m/oh"}}, "error": None} | more


def sdk() -> dict[str, Any]:
    """Return a row of OpenHands' SDK."""
    actions: dict[str, dict[str, Any]] = {
        "terminal": {"kind": "TerminalAction", "command": "cd /workspace/django/ && ls", "is_input": False},
        "file_editor": {"kind": "FileEditorAction", "command": "view", "path": "/workspace/django/a.py"},
        "finish": {"kind": "FinishAction", "message": "done"},
    }
    history = [
        {"kind": "SystemPromptEvent", "source": "agent"},
        *({"kind": "ActionEvent", "tool_name": tool, "action": action} for tool, action in actions.items()),
        {"kind": "ObservationEvent", "source": "environment", "tool_name": "terminal"},
    ]
    return {"instance_id": ID, "history": history, "metadata": {"llm": {"model": "m/sdk"}}}


def write_rows(folder: Path, name: str, *rows: dict[str, Any] | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def read_files(path: Path, ids: Sequence[str] = (ID,), more_ids: Sequence[str] = ()) -> Recordings:
    return read(str(path), dict.fromkeys(ids, "/testbed"), [*ids, *more_ids])


def read_one(path: Path) -> Recording:
    return read_files(path).by_id[ID]


def tools(path: Path) -> list[tuple[str, Any]]:
    """Return tool and main argument of every action."""
    return [(a.tool, a.arguments.get("command", a.arguments.get("cmd"))) for a in read_one(path).actions]


def test_own_trajectory_is_read(tmp_path: Path) -> None:
    file = write_rows(tmp_path, f"runs/one/units/{ID}/1/trajectory.json", own())
    file.with_name("patch.diff").write_bytes(b"diff \xe9\n")
    write_rows(tmp_path, f"runs/one/units/{ID}/1/tries/x/trajectory.json", own(command="half"))
    assert tools(file) == tools(tmp_path) == [("bash", "ls")]
    recordings = read_files(tmp_path)
    assert (recordings.model, recordings.notices) == ("m/own", [])
    recording = recordings.by_id[ID]
    assert (recording.source, recording.patch) == (f"ATIF {file}", "diff \udce9\n")
    assert recording.stop_reason is StopReason.FINISHED


@pytest.mark.parametrize("version", [1, 2])
def test_mini_swe_agent_is_read(tmp_path: Path, version: int) -> None:
    file = write_rows(tmp_path, f"{ID}/{ID}.traj.json", mini(version))
    assert tools(file) == tools(tmp_path) == [("bash", "ls -la")]
    assert read_files(tmp_path).model == "m/mini"
    assert read_one(file).scaffold == "mini-swe-agent"


def test_r2e_gym_skips_refused_commands(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "exp.jsonl", r2e())
    names = [("execute_bash", "ls"), ("file_editor", "str_replace"), ("think", None), ("finish", "submit")]
    assert tools(file) == names
    recording = read_one(file)
    assert (recording.actions[1].arguments["old_str"], recording.actions[1].observation) == ("a < b", "ok")
    assert (recording.scaffold, read_files(file).model) == (None, "m/r2e")


def test_r2e_gym_row_names_its_instance(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"docker_image": "slimshetty/swebench-verified:sweb.eval.x86_64.django__django-11099"},
        {"docker_image": "anything", "ds": {"instance_id": ID}},
        {"docker_image": "anything", "ds": json.dumps({"instance_id": ID})},
    ]
    for number, more in enumerate(rows):
        assert len(tools(write_rows(tmp_path, f"{number}.jsonl", r2e(**more)))) == 4
    row = r2e(docker_image="swebench/sweb.eval.x86_64.pylint-dev_1776_pylint-4970:latest")
    file = write_rows(tmp_path, "exp.jsonl", row)
    assert list(read_files(file, ["Pylint-dev__pylint-4970"]).by_id) == ["Pylint-dev__pylint-4970"]


def test_openhands_workspace_is_testbed(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "output.jsonl", openhands())
    names = [("bash_session", "cd /testbed && ls"), ("edit", "str_replace"), ("think", None), ("finish", None)]
    assert tools(file) == names
    recording = read_one(file)
    assert (recording.actions[1].arguments["path"], recording.scaffold) == ("/testbed/a.py", None)
    assert read_files(file).model == "m/oh"
    elsewhere = read(str(file), {ID: "/calc"}, [ID]).by_id[ID].actions
    assert elsewhere[0].arguments["command"] == "cd /calc && ls"
    assert elsewhere[1].arguments["path"] == "/calc/a.py"
    pairs = [[event, {"observation": "run", "content": ""}] for event in openhands()["history"]]
    assert tools(write_rows(tmp_path, "output.jsonl", openhands(history=pairs))) == names


def test_openhands_sdk_is_read(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "output.jsonl", sdk())
    assert tools(file) == [("bash_session", "cd /testbed/ && ls"), ("file_editor", "view"), ("finish", None)]
    assert read_files(file).model == "m/sdk"


def test_openhands_pairs_events_by_cause(tmp_path: Path) -> None:
    history = [
        event("run", 1, command="ls"),
        event("read", 2, path="/workspace/a") | {"tool_call_metadata": {"x": 1}},
        {"id": 3, "cause": 2, "observation": "read", "content": "text of a"},
        {"id": 4, "cause": 1, "observation": "run", "content": "a"},
        event("read", 5, path="/internal"),
    ]
    actions = read_one(write_rows(tmp_path, "output.jsonl", openhands(history=history))).actions
    assert [(action.tool, action.observation) for action in actions] == [("bash_session", "a"), ("edit", "text of a")]
    assert actions[1].arguments == {"command": "view", "path": "/workspace/a"}


def test_first_good_recording_wins(tmp_path: Path) -> None:
    bad, good = openhands(error="runtime died", history=[]), openhands()
    file = write_rows(tmp_path, "output.jsonl", bad, good, openhands(history=[]))
    write_rows(tmp_path, "output.critic_attempt_1.jsonl", openhands(history=[]))
    write_rows(tmp_path, "cost_report.jsonl", {"cost": 1})
    for path in (file, tmp_path):
        recordings = read_files(path)
        assert len(recordings.by_id[ID].actions) == 4
        assert recordings.notices == [f"2 repeated recordings of instances in {path} are not used"]


def test_unselected_recordings_are_noted(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "exp.jsonl", openhands(), openhands(instance_id="other__other-1"))
    recordings = read_files(file, more_ids=["other__other-1"])
    assert list(recordings.by_id) == [ID]
    assert recordings.notices == [f"{file} has recordings of 1 instances that are not selected"]


UNKNOWN_TOOLS = [event("browse"), event("run_ipython", code="1"), event("edit", path="/a", content="x", start=1, end=2)]
THINKS = json.dumps(openhands(history=[event("think", thought="deep")]))


@pytest.mark.parametrize(
    ("rows", "selected", "reason"),
    [
        ([openhands(), openhands(instance_id="x__x-1")], [ID], r"agent\.trajectories: .*exp\.jsonl: .*x__x-1$"),
        ([openhands()], [ID, "y__y-1", "y__y-2"], r"2 of 3 instances have no recording in .*: y__y-1, y__y-2"),
        (
            [b"", openhands(history=UNKNOWN_TOOLS)],
            [ID],
            r"exp\.jsonl:2 uses .*: browse, run_ipython, edit \(by line range\); known",
        ),
        ([openhands(), b"{"], [ID], r"exp\.jsonl:2 is malformed"),
        ([openhands(), b"\xff"], [ID], r"exp\.jsonl:2 is malformed"),
        ([openhands(), b"[]"], [ID], r"exp\.jsonl:2 is not a trajectory"),
        ([openhands(), {"a": 1}], [ID], r"exp\.jsonl:2 is not a trajectory"),
        ([b"[" * 100_000], [ID], r"exp\.jsonl:1 is malformed: nested too deeply"),
        (
            [THINKS.replace('"deep"', "[" * 300 + "]" * 300).encode()],
            [ID],
            r"exp\.jsonl:1 is malformed: nested too dee",
        ),
    ],
)
def test_unusable_file_is_refused(tmp_path: Path, rows: list[Any], selected: list[str], reason: str) -> None:
    file = write_rows(tmp_path, "exp.jsonl", *rows)
    with pytest.raises(ConfigError, match=reason):
        read_files(file, selected)


def test_empty_source_is_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "contains no trajectory"), (tmp_path / "none", "does not exist")):
        with pytest.raises(ConfigError, match=reason):
            read_files(path)


def program(tmp_path: Path, *calls: tuple[str, dict[str, Any]], beside: str = "") -> list[Action]:
    """Return the actions of an agent program's calls; ``beside`` is a command of its sub-agent, between them."""
    recorder = Recorder(AgentInfo(name="claude-code", version="1", model_name="m/own"), "one", ID, 1)
    recorder.add_message("user", "an issue")
    for place, (tool, arguments) in enumerate(calls):
        recorder.add_agent_turn("", [ToolCall(tool_call_id=str(place), function_name=tool, arguments=arguments)])
        if beside and place == 0:
            time.sleep(0.002)  # turns are ordered by milliseconds
            side = recorder.open_side_conversation(recorder.agent)
            side.add_agent_turn("", [ToolCall(tool_call_id="b", function_name="Bash", arguments={"command": beside})])
            time.sleep(0.002)
    (tmp_path / "trajectory.json").write_bytes(recorder.trajectory(StopReason.FINISHED).to_bytes())
    (tmp_path / "patch.diff").write_text("diff --git a/a b/a\n")
    recordings = read_files(tmp_path)
    actions = recordings.by_id[ID].actions
    assert recordings.by_id[ID].scaffold is None
    note = f"1 recordings in {tmp_path} use unknown tools; their patches are applied instead"
    assert (note in recordings.notices) is (actions[-1].tool == "apply_diff")
    return actions


def test_program_commands_keep_order(tmp_path: Path) -> None:
    actions = program(tmp_path, ("Bash", {"command": "a"}), ("Read", {"file_path": "x"}), beside="b")
    assert [(action.tool, action.arguments.get("command")) for action in actions] == [
        *(("Bash", "a"), ("Bash", "b"), ("Read", None))
    ]


@pytest.mark.parametrize("edit", ["Edit", "apply_patch", "edit"])
def test_missing_tools_apply_the_patch(tmp_path: Path, edit: str) -> None:
    (action,) = program(tmp_path, ("Bash", {"command": "a"}), (edit, {"file_path": "x"}))
    assert (action.tool, action.arguments) == ("apply_diff", {"patch": "diff --git a/a b/a\n"})


KEYS = st.sampled_from(("instance_id", "history", "messages", "info", "trajectory_steps", "args", "extra"))
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@PROPERTY
@given(rows=st.lists(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_any_file_is_read_or_refused(tmp_path: Path, rows: list[bytes]) -> None:
    with contextlib.suppress(ConfigError):
        read_files(write_rows(tmp_path, "rows.jsonl", *rows))
