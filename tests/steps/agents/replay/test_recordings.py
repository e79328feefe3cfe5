from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.agents.formats.r2egym import text_action
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay.recordings import read
from swe_argo.steps.contracts.recording import Action
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
    """The shape of mini-swe-agent 2.4.6 (notes: info, messages with extra.actions) and of its version 1."""
    info = {"config": {"model": {"model_name": "m/mini"}}, "exit_status": "Submitted", "submission": "diff"}
    answer: dict[str, Any] = {"role": "assistant", "content": "I look.\n\n```bash\nls -la\n```\n"}
    if version == 2:
        answer["extra"] = {"actions": [{"command": "ls -la", "tool_call_id": "1"}], "cost": 0.1}
    more_messages = [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "no command"}]
    row = {"info": info, "messages": [{"role": "system", "content": "s"}, answer, *more_messages]}
    return {**row, "trajectory_format": "mini-swe-agent-1.1", "instance_id": ID} if version == 2 else row


def r2e(**more: Any) -> dict[str, Any]:
    call = "<function=file_editor>\n<parameter=command>str_replace</parameter>\n"
    call += "<parameter=path>/testbed/a.py</parameter>\n"
    call += "<parameter=old_str>\na < b\n</parameter>\n<parameter=new_str>a > b</parameter>\n</function>"
    steps = [
        {"step_idx": 0, "thought": "t", "action": "<function=execute_bash><parameter=cmd>ls</parameter></function>"},
        {"step_idx": 1, "action": call, "observation": "ok"},
        {"step_idx": 2, "action": ""},
        {
            "action": "<function=execute_bash><parameter=cmd>git stash</parameter></function>",
            "observation": "Bash command 'git' is not allowed.",
        },
        {"action": "<function=finish><parameter=command>submit</parameter></function>"},
    ]
    image = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
    return {"trajectory_steps": steps, "docker_image": image, "agent_args": {"llm_name": "m/r2e"}, "ds": {}} | more


def openhands(**more: Any) -> dict[str, Any]:
    place = "/workspace/django__django__3.0"
    history = [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "s"}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "fix it"}},
        {"id": 2, "source": "agent", "action": "run", "args": {"command": f"cd {place} && ls", "is_input": "false"}},
        {"id": 3, "source": "agent", "observation": "run", "content": "x", "extras": {}},
        {"id": 4, "source": "agent", "action": "run", "args": {"command": "C-c", "is_input": "true"}},
        {"id": 5, "source": "agent", "action": "read", "args": {"path": f"{place}/a.py"}},
        {
            "source": "agent",
            "action": "edit",
            "args": {"path": f"{place}/a.py", "command": "str_replace", "old_str": "a", "new_str": "b"},
        },
        {"source": "agent", "action": "think", "args": {"thought": "t"}},
        {"source": "agent", "action": "finish", "args": {}},
    ]
    return {"instance_id": ID, "history": history, "metadata": {"llm_config": {"model": "m/oh"}}, "error": None} | more


def sdk() -> dict[str, Any]:
    history = [
        {"kind": "SystemPromptEvent", "source": "agent"},
        {
            "kind": "ActionEvent",
            "source": "agent",
            "tool_name": "terminal",
            "action": {"kind": "TerminalAction", "command": "cd /workspace/django/ && ls", "is_input": False},
        },
        {"kind": "ObservationEvent", "source": "environment", "tool_name": "terminal"},
        {
            "kind": "ActionEvent",
            "tool_name": "file_editor",
            "action": {"kind": "FileEditorAction", "command": "view", "path": "/workspace/django/a.py"},
        },
        {"kind": "ActionEvent", "tool_name": "finish", "action": {"kind": "FinishAction", "message": "done"}},
    ]
    return {"instance_id": ID, "history": history, "metadata": {"llm": {"model": "m/sdk"}}}


def write_rows(folder: Path, name: str, *rows: dict[str, Any] | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def tools(path: Path) -> list[tuple[str, Any]]:
    """Tool and main argument of every action."""
    actions = read(str(path), [ID]).by_id[ID].actions
    return [(a.tool, a.arguments.get("command", a.arguments.get("cmd"))) for a in actions]


def test_own_trajectory_is_read(tmp_path: Path) -> None:
    file = write_rows(tmp_path, f"runs/one/units/{ID}/1/trajectory.json", own())
    write_rows(tmp_path, f"runs/one/units/{ID}/1/tries/x/trajectory.json", own(command="half"))
    assert tools(file) == tools(tmp_path) == [("bash", "ls")]
    recordings = read(str(tmp_path), [ID])
    assert recordings.model == "m/own"
    assert recordings.notices == []
    assert recordings.by_id[ID].source == f"ATIF {file}"


@pytest.mark.parametrize("version", [1, 2])
def test_mini_swe_agent_is_read(tmp_path: Path, version: int) -> None:
    file = write_rows(tmp_path, f"{ID}/{ID}.traj.json", mini(version))
    assert tools(file) == tools(tmp_path) == [("bash", "ls -la")]
    assert read(str(tmp_path), [ID]).model == "m/mini"


def test_r2e_gym_skips_refused_commands(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "exp.jsonl", r2e())
    assert tools(file) == [
        ("execute_bash", "ls"),
        ("file_editor", "str_replace"),
        ("think", None),
        ("finish", "submit"),
    ]
    edit = read(str(file), [ID]).by_id[ID].actions[1]
    assert edit.arguments["old_str"] == "a < b"
    assert read(str(file), [ID]).model == "m/r2e"


@pytest.mark.parametrize(
    "more",
    [
        {"docker_image": "slimshetty/swebench-verified:sweb.eval.x86_64.django__django-11099"},
        {"docker_image": "anything", "ds": {"instance_id": ID}},
        {"docker_image": "anything", "ds": json.dumps({"instance_id": ID})},
    ],
)
def test_r2e_gym_row_names_its_instance(tmp_path: Path, more: dict[str, Any]) -> None:
    assert len(tools(write_rows(tmp_path, "exp.jsonl", r2e(**more)))) == 4


def test_image_matches_capitalised_id(tmp_path: Path) -> None:
    row = r2e(docker_image="swebench/sweb.eval.x86_64.pylint-dev_1776_pylint-4970:latest")
    file = write_rows(tmp_path, "exp.jsonl", row)
    assert list(read(str(file), ["Pylint-dev__pylint-4970"]).by_id) == ["Pylint-dev__pylint-4970"]


def test_openhands_workspace_is_testbed(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "output.jsonl", openhands())
    assert tools(file) == [
        ("bash_session", "cd /testbed && ls"),
        ("edit", "str_replace"),
        ("think", None),
        ("finish", None),
    ]
    assert read(str(file), [ID]).by_id[ID].actions[1].arguments["path"] == "/testbed/a.py"
    assert read(str(file), [ID]).model == "m/oh"
    elsewhere = read(str(file), {ID: "/calc"}).by_id[ID].actions
    assert elsewhere[0].arguments["command"] == "cd /calc && ls"
    assert elsewhere[1].arguments["path"] == "/calc/a.py"


def test_openhands_event_pairs_are_read(tmp_path: Path) -> None:
    row = openhands()
    row["history"] = [[event, {"observation": "run", "content": ""}] for event in row["history"]]
    assert len(tools(write_rows(tmp_path, "output.jsonl", row))) == 4


def test_openhands_sdk_is_read(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "output.jsonl", sdk())
    assert tools(file) == [("bash_session", "cd /testbed/ && ls"), ("file_editor", "view"), ("finish", None)]
    assert read(str(file), [ID]).model == "m/sdk"


def test_first_good_recording_wins(tmp_path: Path) -> None:
    bad, good = openhands(error="runtime died", history=[]), openhands()
    file = write_rows(tmp_path, "output.jsonl", bad, good, openhands(history=[]))
    recordings = read(str(file), [ID])
    assert len(recordings.by_id[ID].actions) == 4
    assert recordings.notices == [f"2 repeated recordings of instances in {file} are not used"]


def test_openhands_folder_is_read(tmp_path: Path) -> None:
    write_rows(tmp_path, "output.jsonl", openhands())
    write_rows(tmp_path, "output.critic_attempt_1.jsonl", openhands(history=[]))
    write_rows(tmp_path, "cost_report.jsonl", {"cost": 1})
    assert len(tools(tmp_path)) == 4


def test_unselected_recordings_are_noted(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "exp.jsonl", openhands(), openhands(instance_id="other__other-1"))
    recordings = read(str(file), [ID], [ID, "other__other-1"])
    assert list(recordings.by_id) == [ID]
    assert recordings.notices == [f"{file} has recordings of 1 instances that are not selected"]


def test_unknown_instances_are_listed(tmp_path: Path) -> None:
    file = write_rows(
        tmp_path, "exp.jsonl", openhands(), openhands(instance_id="x__x-1"), openhands(instance_id="x__x-2")
    )
    with pytest.raises(ConfigError, match=r"agent\.trajectories: .*exp\.jsonl: .*x__x-1, x__x-2$"):
        read(str(file), [ID], [ID])


def test_missing_recordings_are_listed(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "exp.jsonl", openhands())
    with pytest.raises(ConfigError, match=r"2 of 3 instances have no recording in .*: y__y-1, y__y-2"):
        read(str(file), [ID, "y__y-1", "y__y-2"])


def test_unsupported_tools_are_named(tmp_path: Path) -> None:
    history = [
        {"source": "agent", "action": "browse", "args": {}},
        {"source": "agent", "action": "run_ipython", "args": {"code": "1"}},
        {"source": "agent", "action": "edit", "args": {"path": "/a", "content": "x", "start": 1, "end": 2}},
    ]
    file = write_rows(tmp_path, "output.jsonl", b"", openhands(history=history))
    with pytest.raises(
        ConfigError, match=r"output\.jsonl:2 uses .*: browse, run_ipython, edit \(by line range\); known"
    ):
        read(str(file), [ID])


def program(tmp_path: Path, *calls: tuple[str, dict[str, Any]], beside: str = "") -> list[Action]:
    """What is done again of an agent program's calls; ``beside``: a command of its sub-agent, between them."""
    recorder = Recorder(AgentInfo(name="claude-code", version="1", model_name="m/own"), "one", ID, 1)
    recorder.add_message("user", "an issue")
    for place, (tool, arguments) in enumerate(calls):
        recorder.add_agent_turn("", [ToolCall(tool_call_id=str(place), function_name=tool, arguments=arguments)])
        if beside and place == 0:
            time.sleep(0.002)  # turns are told apart by milliseconds
            side = recorder.open_beside(recorder.agent)
            call = ToolCall(tool_call_id="b", function_name="Bash", arguments={"command": beside})
            side.add_agent_turn("", [call])
            time.sleep(0.002)
    (tmp_path / "trajectory.json").write_bytes(recorder.trajectory(StopReason.FINISHED).to_bytes())
    (tmp_path / "patch.diff").write_text("diff --git a/a b/a\n")
    read_back = read(str(tmp_path), [ID])
    assert read_back.by_id[ID].scaffold is None
    assert [line for line in read_back.notices if "their patches are applied" in line] == [
        f"{number} recordings in {tmp_path} use unknown tools; their patches are applied instead"
        for number in [1] * (read_back.by_id[ID].actions[-1].tool == "apply_diff")
    ]
    return read_back.by_id[ID].actions


def test_program_commands_keep_order(tmp_path: Path) -> None:
    actions = program(tmp_path, ("Bash", {"command": "a"}), ("Read", {"file_path": "x"}), beside="b")
    assert [(action.tool, action.arguments.get("command")) for action in actions] == [
        ("Bash", "a"),
        ("Bash", "b"),
        ("Read", None),
    ]


@pytest.mark.parametrize("edit", ["Edit", "apply_patch", "edit"])
def test_missing_tools_apply_the_patch(tmp_path: Path, edit: str) -> None:
    (action,) = program(tmp_path, ("Bash", {"command": "a"}), (edit, {"file_path": "x"}))
    assert (action.tool, action.arguments) == ("apply_diff", {"patch": "diff --git a/a b/a\n"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", r"exp\.jsonl:2 is malformed"),
        (b"[]", r"exp\.jsonl:2 is not a trajectory"),
        (b'{"a": 1}', r"exp\.jsonl:2 is not a trajectory"),
        (b"\xff", r"exp\.jsonl:2 is malformed"),
    ],
)
def test_malformed_row_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    file = write_rows(tmp_path, "exp.jsonl", openhands(), content)
    with pytest.raises(ConfigError, match=reason):
        read(str(file), [ID])


def test_empty_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains no trajectory"):
        read(str(tmp_path), [ID])
    with pytest.raises(ConfigError, match="does not exist"):
        read(str(tmp_path / "none"), [ID])


def test_first_text_function_counts() -> None:
    text = "<think>x</think><function=a><parameter=k> v\n</parameter></function><function=b></function>"
    assert text_action(text) == Action(tool="a", arguments={"k": "v"})
    assert text_action("no call") is None


@pytest.mark.parametrize("unit", ["<function=", "<function=a><parameter=", "<parameter=k>"])
def test_text_action_handles_repetition(unit: str) -> None:
    assert text_action("<function=a>" + unit * (4_000_000 // len(unit))) is not None


def test_patch_is_read_beside_trajectory(tmp_path: Path) -> None:
    write_rows(tmp_path, f"runs/one/units/{ID}/1/trajectory.json", own())
    (tmp_path / f"runs/one/units/{ID}/1/patch.diff").write_bytes(b"diff \xe9\n")
    recording = read(str(tmp_path), [ID]).by_id[ID]
    assert recording.patch == "diff \udce9\n"
    assert recording.stop_reason is StopReason.FINISHED


@pytest.mark.parametrize(
    ("form", "row", "observation"),
    [
        ("mini", mini, None),
        ("r2e", r2e, "ok"),
        ("openhands", openhands, None),
    ],
)
def test_scaffold_is_not_assumed(tmp_path: Path, form: str, row: Any, observation: str | None) -> None:
    recording = read(str(write_rows(tmp_path, "rows.jsonl", row())), [ID]).by_id[ID]
    assert recording.scaffold == ("mini-swe-agent" if form == "mini" else None)
    assert recording.actions[1 % len(recording.actions)].observation == observation


def test_openhands_pairs_events_by_cause(tmp_path: Path) -> None:
    history = [
        {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls"}},
        {
            "id": 2,
            "source": "agent",
            "action": "read",
            "args": {"path": "/workspace/a"},
            "tool_call_metadata": {"x": 1},
        },
        {"id": 3, "cause": 2, "observation": "read", "content": "text of a"},
        {"id": 4, "cause": 1, "observation": "run", "content": "a"},
        {"id": 5, "source": "agent", "action": "read", "args": {"path": "/internal"}},
    ]
    file = write_rows(tmp_path, "output.jsonl", openhands(history=history))
    actions = read(str(file), [ID]).by_id[ID].actions
    assert [(action.tool, action.observation) for action in actions] == [("bash_session", "a"), ("edit", "text of a")]
    assert actions[1].arguments == {"command": "view", "path": "/workspace/a"}


@PROPERTY
@given(
    rows=st.lists(
        st.binary(max_size=60)
        | st.recursive(
            st.none() | st.integers() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(("instance_id", "history", "messages", "info", "trajectory_steps", "args", "extra"))
                    | st.text(max_size=4),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
        max_size=4,
    )
)
def test_any_file_is_read_or_refused(rows: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_bytes(b"\n".join(rows))
        with contextlib.suppress(ConfigError):
            read(str(file), [ID])


def test_deeply_nested_json_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"[" * 100_000)
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1 is malformed: nested too deeply"):
        read(str(file), [ID])
    call = {"source": "agent", "action": "think", "args": {"thought": "deep"}}
    file.write_bytes(json.dumps(openhands(history=[call])).replace('"deep"', "[" * 300 + "]" * 300).encode())
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1 is malformed: nested too deeply"):
        read(str(file), [ID])
