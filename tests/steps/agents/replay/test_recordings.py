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
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.replay.recordings import read
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason, ToolCall
from swe_argo.steps.errors import ConfigError
from tests.steps.datasets.sample_rows import PROPERTY

ID = "django__django-11099"


def own(instance: str = ID, command: str = "ls", reason: StopReason = StopReason.FINISHED) -> bytes:
    journal = Journal(AgentInfo(name="replay", version="1", model_name="m/own"), "one", instance, 1)
    journal.add_message("user", "an issue")
    journal.add_agent_turn("", [ToolCall(tool_call_id="c", function_name="bash", arguments={"command": command})])
    return journal.trajectory(reason).to_bytes()


def mini(version: int = 2) -> dict[str, Any]:
    """The shape of mini-swe-agent 2.4.6 (notes: info, messages with extra.actions) and of its version 1."""
    info = {"config": {"model": {"model_name": "m/mini"}}, "exit_status": "Submitted", "submission": "diff"}
    answer: dict[str, Any] = {"role": "assistant", "content": "I look.\n\n```bash\nls -la\n```\n"}
    if version == 2:
        answer["extra"] = {"actions": [{"command": "ls -la", "tool_call_id": "1"}], "cost": 0.1}
    rest = [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "no command"}]
    row = {"info": info, "messages": [{"role": "system", "content": "s"}, answer, *rest]}
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


def put(folder: Path, name: str, *rows: dict[str, Any] | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def tools(path: Path) -> list[tuple[str, Any]]:
    """Tool and main argument of every action."""
    actions = read(str(path), [ID]).by_id[ID].actions
    return [(a.tool, a.arguments.get("command", a.arguments.get("cmd"))) for a in actions]


def test_our_own_trajectory_is_read_from_a_file_and_from_a_folder_of_runs(tmp_path: Path) -> None:
    file = put(tmp_path, f"runs/one/units/{ID}/1/trajectory.json", own())
    put(tmp_path, f"runs/one/units/{ID}/1/tries/x/trajectory.json", own(command="half"))
    assert tools(file) == tools(tmp_path) == [("bash", "ls")]
    found = read(str(tmp_path), [ID])
    assert found.model == "m/own"
    assert found.notices == []
    assert found.by_id[ID].source == f"ATIF {file}"


@pytest.mark.parametrize("version", [1, 2])
def test_mini_swe_agent_is_read(tmp_path: Path, version: int) -> None:
    file = put(tmp_path, f"{ID}/{ID}.traj.json", mini(version))
    assert tools(file) == tools(tmp_path) == [("bash", "ls -la")]
    assert read(str(tmp_path), [ID]).model == "m/mini"


def test_r2e_gym_is_read_and_what_it_refused_is_not_done(tmp_path: Path) -> None:
    file = put(tmp_path, "exp.jsonl", r2e())
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
def test_r2e_gym_names_its_instance_by_image_or_row(tmp_path: Path, more: dict[str, Any]) -> None:
    assert len(tools(put(tmp_path, "exp.jsonl", r2e(**more)))) == 4


def test_an_image_has_no_capitals_but_an_id_may(tmp_path: Path) -> None:
    row = r2e(docker_image="swebench/sweb.eval.x86_64.pylint-dev_1776_pylint-4970:latest")
    file = put(tmp_path, "exp.jsonl", row)
    assert list(read(str(file), ["Pylint-dev__pylint-4970"]).by_id) == ["Pylint-dev__pylint-4970"]


def test_openhands_is_read_with_its_workspace_as_testbed(tmp_path: Path) -> None:
    file = put(tmp_path, "output.jsonl", openhands())
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


def test_openhands_histories_of_pairs_are_read(tmp_path: Path) -> None:
    row = openhands()
    row["history"] = [[event, {"observation": "run", "content": ""}] for event in row["history"]]
    assert len(tools(put(tmp_path, "output.jsonl", row))) == 4


def test_the_sdk_of_openhands_is_read(tmp_path: Path) -> None:
    file = put(tmp_path, "output.jsonl", sdk())
    assert tools(file) == [("bash_session", "cd /testbed/ && ls"), ("file_editor", "view"), ("finish", None)]
    assert read(str(file), [ID]).model == "m/sdk"


def test_of_several_recordings_the_first_good_one_counts(tmp_path: Path) -> None:
    bad, good = openhands(error="runtime died", history=[]), openhands()
    file = put(tmp_path, "output.jsonl", bad, good, openhands(history=[]))
    found = read(str(file), [ID])
    assert len(found.by_id[ID].actions) == 4
    assert found.notices == [f"2 further recordings of the same instances in {file} are not used"]


def test_the_output_of_an_openhands_folder_is_found_among_its_other_files(tmp_path: Path) -> None:
    put(tmp_path, "output.jsonl", openhands())
    put(tmp_path, "output.critic_attempt_1.jsonl", openhands(history=[]))
    put(tmp_path, "cost_report.jsonl", {"cost": 1})
    assert len(tools(tmp_path)) == 4


def test_recordings_of_other_instances_are_passed_over_with_a_notice(tmp_path: Path) -> None:
    file = put(tmp_path, "exp.jsonl", openhands(), openhands(instance_id="other__other-1"))
    found = read(str(file), [ID], [ID, "other__other-1"])
    assert list(found.by_id) == [ID]
    assert found.notices == [f"{file} has recordings of 1 instances that are not selected"]


def test_all_unknown_instances_are_listed_in_one_error(tmp_path: Path) -> None:
    file = put(tmp_path, "exp.jsonl", openhands(), openhands(instance_id="x__x-1"), openhands(instance_id="x__x-2"))
    with pytest.raises(ConfigError, match=r"agent\.trajectories: .*exp\.jsonl: .*x__x-1, x__x-2$"):
        read(str(file), [ID], [ID])


def test_all_instances_without_a_recording_are_listed_in_one_error(tmp_path: Path) -> None:
    file = put(tmp_path, "exp.jsonl", openhands())
    with pytest.raises(ConfigError, match=r"2 of 3 instances have no recording in .*: y__y-1, y__y-2"):
        read(str(file), [ID, "y__y-1", "y__y-2"])


def test_tools_that_cannot_be_performed_are_named_with_file_and_row(tmp_path: Path) -> None:
    history = [
        {"source": "agent", "action": "browse", "args": {}},
        {"source": "agent", "action": "run_ipython", "args": {"code": "1"}},
        {"source": "agent", "action": "edit", "args": {"path": "/a", "content": "x", "start": 1, "end": 2}},
    ]
    file = put(tmp_path, "output.jsonl", b"", openhands(history=history))
    with pytest.raises(
        ConfigError, match=r"output\.jsonl:2 uses .*: browse, run_ipython, edit \(by line range\); known"
    ):
        read(str(file), [ID])


def program(tmp_path: Path, *calls: tuple[str, dict[str, Any]], beside: str = "") -> list[Action]:
    """What is done again of an agent program's calls; ``beside``: a command of its sub-agent, between them."""
    journal = Journal(AgentInfo(name="claude-code", version="1", model_name="m/own"), "one", ID, 1)
    journal.add_message("user", "an issue")
    for place, (tool, arguments) in enumerate(calls):
        journal.add_agent_turn("", [ToolCall(tool_call_id=str(place), function_name=tool, arguments=arguments)])
        if beside and place == 0:
            time.sleep(0.002)  # turns are told apart by milliseconds
            side = journal.open_beside(journal.agent)
            call = ToolCall(tool_call_id="b", function_name="Bash", arguments={"command": beside})
            side.add_agent_turn("", [call])
            time.sleep(0.002)
    (tmp_path / "trajectory.json").write_bytes(journal.trajectory(StopReason.FINISHED).to_bytes())
    (tmp_path / "patch.diff").write_text("diff --git a/a b/a\n")
    read_back = read(str(tmp_path), [ID])
    assert read_back.by_id[ID].scaffold is None
    assert [line for line in read_back.notices if "their patches are applied" in line] == [
        f"{number} recordings in {tmp_path} used tools that are not here: their patches are applied"
        for number in [1] * (read_back.by_id[ID].actions[-1].tool == "apply_diff")
    ]
    return read_back.by_id[ID].actions


def test_commands_of_an_agent_program_and_its_sub_agents_are_done_again_in_their_order(tmp_path: Path) -> None:
    actions = program(tmp_path, ("Bash", {"command": "a"}), ("Read", {"file_path": "x"}), beside="b")
    assert [(action.tool, action.arguments.get("command")) for action in actions] == [
        ("Bash", "a"),
        ("Bash", "b"),
        ("Read", None),
    ]


@pytest.mark.parametrize("edit", ["Edit", "apply_patch", "edit"])
def test_of_an_agent_program_with_tools_that_are_not_here_the_patch_is_applied(tmp_path: Path, edit: str) -> None:
    (action,) = program(tmp_path, ("Bash", {"command": "a"}), (edit, {"file_path": "x"}))
    assert (action.tool, action.arguments) == ("apply_diff", {"patch": "diff --git a/a b/a\n"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", r"exp\.jsonl:2 is malformed"),
        (b"[]", r"exp\.jsonl:2 is no trajectory"),
        (b'{"a": 1}', r"exp\.jsonl:2 is no trajectory"),
        (b"\xff", r"exp\.jsonl:2 is malformed"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    file = put(tmp_path, "exp.jsonl", openhands(), content)
    with pytest.raises(ConfigError, match=reason):
        read(str(file), [ID])


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no trajectory"):
        read(str(tmp_path), [ID])
    with pytest.raises(ConfigError, match="there is no file or folder"):
        read(str(tmp_path / "none"), [ID])


def test_the_first_function_of_a_text_counts() -> None:
    text = "<think>x</think><function=a><parameter=k> v\n</parameter></function><function=b></function>"
    assert text_action(text) == Action(tool="a", arguments={"k": "v"})
    assert text_action("no call") is None


@pytest.mark.parametrize("unit", ["<function=", "<function=a><parameter=", "<parameter=k>"])
def test_a_text_that_repeats_itself_is_read_at_once(unit: str) -> None:
    assert text_action("<function=a>" + unit * (4_000_000 // len(unit))) is not None


def test_what_atif_has_no_place_for_is_read_beside_it(tmp_path: Path) -> None:
    put(tmp_path, f"runs/one/units/{ID}/1/trajectory.json", own())
    (tmp_path / f"runs/one/units/{ID}/1/patch.diff").write_bytes(b"diff \xe9\n")
    recording = read(str(tmp_path), [ID]).by_id[ID]
    assert recording.patch == "diff \udce9\n"
    assert recording.stop_reason is StopReason.FINISHED


@pytest.mark.parametrize(
    ("form", "row", "seen"),
    [
        ("mini", mini, None),
        ("r2e", r2e, "ok"),
        ("openhands", openhands, None),
    ],
)
def test_whose_tools_others_are_is_not_assumed(tmp_path: Path, form: str, row: Any, seen: str | None) -> None:
    recording = read(str(put(tmp_path, "rows.jsonl", row())), [ID]).by_id[ID]
    assert recording.scaffold == ("mini-swe-agent" if form == "mini" else None)
    assert recording.actions[1 % len(recording.actions)].observation == seen


def test_observations_of_openhands_are_found_by_their_cause(tmp_path: Path) -> None:
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
    file = put(tmp_path, "output.jsonl", openhands(history=history))
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
def test_no_file_is_more_than_a_wrong_request(rows: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_bytes(b"\n".join(rows))
        with contextlib.suppress(ConfigError):
            read(str(file), [ID])


def test_json_that_is_nested_too_deeply_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"[" * 100_000)
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1 is malformed: nested too deeply"):
        read(str(file), [ID])
    call = {"source": "agent", "action": "think", "args": {"thought": "deep"}}
    file.write_bytes(json.dumps(openhands(history=[call])).replace('"deep"', "[" * 300 + "]" * 300).encode())
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1 is malformed: nested too deeply"):
        read(str(file), [ID])
