"""SWE-agent's ``.traj`` of any version: read as recording and prediction, and written for its tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.formats import sweagent
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.datasets import predictions
from swe_argo.steps.errors import ConfigError
from tests.steps.agents.formats.test_reading import ID, read_files
from tests.steps.agents.solved_units import PATCH, Call, solved_unit

DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"


def step(action: str, observation: str = "") -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": "r", "thought": "t", "query": []}


def called(action: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a message of the conversation in which a tool was called by function calling."""
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": "t", "action": action, "agent": "main", "tool_calls": [call]}


def row(steps: list[dict[str, Any]], status: object = "submitted", submission: object = DIFF, **more: Any) -> Any:
    info = {"exit_status": status, "submission": submission, "model_stats": {"api_calls": 3}}
    return {"environment": "main", "trajectory": steps, "history": [], "info": info, **more}


def write_trajectory(folder: Path, content: object, name: str = ID) -> Path:
    file = folder / name / f"{name}.traj"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


EDITED = "str_replace_editor str_replace /testbed/a.py --old_str 'a = 1' --new_str 'a = \"2\"\n'"
STEPS = [
    step("cd src && ls -F", "a.py\n"),
    step("str_replace_editor view /testbed/a.py --view_range 1 -1", "1\ta = 1"),
    step("", "Your command was not well-formed."),
    step(EDITED),
    step("str_replace_editor insert /testbed/a.py --insert_line 3 --new_str x"),
    step("submit", "Review your changes."),
    step("rm reproduce.py"),
    step("submit", DIFF),
]
EXPECTED_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash_session", {"command": "cd src && ls -F"}),
    ("str_replace_editor", {"command": "view", "path": "/testbed/a.py", "view_range": [1, -1]}),
    (
        "str_replace_editor",
        {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 1", "new_str": 'a = "2"\n'},
    ),
    ("str_replace_editor", {"command": "insert", "path": "/testbed/a.py", "insert_line": 3, "new_str": "x"}),
    ("bash_session", {"command": "rm reproduce.py"}),
    ("submit", {}),
]
HISTORY = [
    {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
    {"role": "assistant", "content": "d", "action": "ls", "agent": "main", "is_demo": True},
    called("cd src && ls -F", "bash", command="cd src && ls -F"),
    called(STEPS[1]["action"], "str_replace_editor", command="view", path="/testbed/a.py", view_range=[1, -1]),
    called(EDITED, "str_replace_editor", **EXPECTED_CALLS[2][1]),
    called(STEPS[4]["action"], "str_replace_editor", **EXPECTED_CALLS[3][1]),
    called("submit", "submit"),
    called("rm reproduce.py", "bash", command="rm reproduce.py"),
    called("submit", "submit"),
]


@pytest.mark.parametrize("history", [[], HISTORY], ids=["by the line", "by the call"])
@pytest.mark.parametrize(
    "config", [{"agent": {"model": {"name": "gpt-4o"}}}, '{"agent": {"model": {"name": "gpt-4o"}}}']
)
def test_actions_become_our_tool_calls(tmp_path: Path, history: list[Any], config: Any) -> None:
    file = write_trajectory(tmp_path, row(STEPS, history=history, replay_config=config))
    for path in (file, tmp_path):
        recordings = read_files(path)
        recording = recordings.by_id[ID]
        assert [(action.tool, action.arguments) for action in recording.actions] == EXPECTED_CALLS
        assert recording.actions[0].observation == "a.py\n"
        assert (recordings.model, recording.patch, recording.scaffold) == ("gpt-4o", DIFF, None)
        assert (recording.stop_reason, recordings.notices) == (StopReason.FINISHED, [])


@pytest.mark.parametrize("word", ["open a.py", "edit 1:2\nx\nend_of_edit", "create b.py", "search_dir x", "goto 7"])
def test_windowed_tools_apply_the_patch(tmp_path: Path, word: str) -> None:
    recordings = read_files(write_trajectory(tmp_path, row([step("ls"), step(word), step("submit")])))
    assert recordings.by_id[ID].actions == [Action(tool="apply_diff", arguments={"patch": DIFF})]
    assert recordings.notices == [
        f"1 recordings in {tmp_path / ID / f'{ID}.traj'} use unknown tools; their patches are applied instead"
    ]
    nothing = read_files(write_trajectory(tmp_path, row([step(word)], "exit_cost", None)))
    assert nothing.by_id[ID].actions == []


@pytest.mark.parametrize("status", ["submitted", "submitted (exit_cost)", "exit_context", "exit_format"])
def test_agent_ends_are_predictions(tmp_path: Path, status: str) -> None:
    reasons = {
        "submitted": StopReason.FINISHED,
        "submitted (exit_cost)": StopReason.COST_LIMIT,
        "exit_context": StopReason.CONTEXT_OVERFLOW,
        "exit_format": StopReason.MALFORMED,
    }
    submission = None if status.startswith("exit") else DIFF
    file = write_trajectory(tmp_path, row(STEPS, status, submission))
    assert read_files(file).by_id[ID].stop_reason is reasons[status]
    for path in (file, tmp_path):
        predicted = predictions.read(path, [ID], [ID])
        assert (predicted.patches, predicted.model) == ({ID: submission}, "SWE-agent")
        assert len(predicted.notices) == (submission is None)  # half of the patches or more are empty


@pytest.mark.parametrize("status", ["exit_environment_error", "submitted (exit_api)", "exit_error", None, 3])
def test_infrastructure_ends_are_skipped(tmp_path: Path, status: object) -> None:
    write_trajectory(tmp_path, row(STEPS, status))
    write_trajectory(tmp_path, row(STEPS), "django__django-2")
    predicted = predictions.read(tmp_path, [ID, "django__django-2"], [ID, "django__django-2"])
    assert predicted.patches == {"django__django-2": DIFF}
    assert f"1 trajectories in {tmp_path.name} ended in an infrastructure failure" in predicted.notices[0]
    again = write_trajectory(tmp_path / "again", row(STEPS))
    assert read_files(tmp_path, more_ids=["django__django-2"]).by_id[ID].source == f"SWE-agent {again}", (
        "a good one counts over it"
    )


def test_retry_file_has_its_attempts(tmp_path: Path) -> None:
    attempts = [row([step("ls")], "exit_cost", None), row(STEPS)]
    file = write_trajectory(tmp_path, {"attempts": attempts})
    assert len(read_files(file).by_id[ID].actions) == len(EXPECTED_CALLS)
    assert predictions.read(file, [ID], [ID]).patches == {ID: DIFF}
    chosen = write_trajectory(tmp_path, {"attempts": attempts, **attempts[0]})
    assert predictions.read(chosen, [ID], [ID]).patches == {ID: None}


def test_terminal_line_endings_are_fixed(tmp_path: Path) -> None:
    file = write_trajectory(tmp_path, row(STEPS, submission="\r\n" + DIFF.replace("\n", "\r\n")))
    assert predictions.read(file, [ID], [ID]).patches == {ID: "\n" + DIFF}
    mixed = DIFF.replace("a = 1\n", "a = 1\r\n")
    assert predictions.read(write_trajectory(tmp_path, row(STEPS, submission=mixed)), [ID], [ID]).patches == {ID: mixed}


@pytest.mark.parametrize("content", [{}, [], {"trajectory": [3]}, {"info": {}}, {"history": []}])
def test_other_file_is_named(tmp_path: Path, content: object) -> None:
    file = write_trajectory(tmp_path, content)
    with pytest.raises(ConfigError, match=rf"{ID}\.traj is not a trajectory of SWE-agent"):
        predictions.read(file, [ID], [ID])
    with pytest.raises(ConfigError, match=rf"{ID}\.traj (is not a trajectory|contains no)"):
        read_files(file)


def test_invalid_submission_is_named(tmp_path: Path) -> None:
    file = write_trajectory(tmp_path, row(STEPS, submission=3))
    for reader in (lambda: predictions.read(file, [ID], [ID]), lambda: read_files(file)):
        with pytest.raises(ConfigError, match=r"info.submission is int, not text or null"):
            reader()


def test_pred_files_are_predictions(tmp_path: Path) -> None:
    ids = ["a__a-1", "a__a-2", "a__a-3"]
    for instance_id, patch in zip(ids, [DIFF, None, "other"], strict=True):
        (tmp_path / instance_id).mkdir()
        fields = {"instance_id": instance_id, "model_name_or_path": "claude", "model_patch": patch}
        (tmp_path / instance_id / f"{instance_id}.pred").write_text(json.dumps(fields))
    single = predictions.read(tmp_path / ids[0] / f"{ids[0]}.pred", ids, ids)
    assert (single.model, single.patches) == ("claude", {ids[0]: DIFF})
    assert predictions.read(tmp_path, ids, ids).patches == {ids[0]: DIFF, ids[1]: None, ids[2]: "other"}
    write_trajectory(tmp_path, row(STEPS, "exit_environment_error"), ids[2])
    assert predictions.read(tmp_path, ids, ids).patches == {ids[0]: DIFF, ids[1]: None}


@pytest.mark.parametrize("content", ["[1]", "3", "{}", '{"a__a-1": 3}', "{"])
def test_malformed_pred_file_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match="contains no predictions"):
        predictions.read(tmp_path, [ID], [ID])
    (tmp_path / "a__a-1.pred").write_text(content)
    with pytest.raises(ConfigError):
        predictions.read(tmp_path, [ID], [ID])


# -- written


LOOK: Call = ("execute_bash", {"cmd": "ls 'a b'"}, "a.py\n")
EDIT: Call = ("file_editor", {"command": "view", "path": "/testbed/a.py", "view_range": [1, 2]}, "1\ta = 1")
THINK: Call = ("search", {"search_term": "it's"}, "none")
FINISH: Call = ("finish", {"command": "submit"}, "")


@pytest.mark.parametrize("form", ["function_calling", "text"])
def test_written_file_layout(form: Any) -> None:
    written = json.loads(sweagent.write(solved_unit([LOOK], [EDIT], [THINK], [FINISH], form=form)))
    assert [entry["action"] for entry in written["trajectory"]] == [
        "ls 'a b'",
        "str_replace_editor view /testbed/a.py --view_range 1 2",
        "search --search_term 'it'\"'\"'s'",
        "submit",
    ]
    for entry in written["trajectory"]:
        assert entry.keys() >= {"action", "observation", "response", "state", "thought", "execution_time", "extra_info"}
    assert written["trajectory"][0]["observation"] == "a.py\n"
    assert written["info"]["exit_status"] == "submitted"
    assert written["info"]["submission"] == PATCH
    stats = {"instance_cost": 0.04, "tokens_sent": 400, "tokens_received": 0, "api_calls": 4}
    assert written["info"]["model_stats"] == stats
    roles = [(entry["role"], entry["message_type"]) for entry in written["history"]]
    result_role = "tool" if form == "function_calling" else "user"
    assert roles == [
        ("system", "system_prompt"),
        ("user", "observation"),
        *[("assistant", "action"), (result_role, "observation")] * 4,
    ]
    for entry in written["history"]:
        assert entry.keys() >= {"role", "content", "agent", "message_type"}
        assert ("tool_calls" in entry) == (entry["role"] == "assistant" and form == "function_calling")
        assert ("tool_call_ids" in entry) == (entry["role"] == "tool")


@pytest.mark.parametrize(
    ("reason", "patch", "status"),
    [
        (StopReason.FINISHED, "", "submitted"),
        (StopReason.MAX_STEPS, PATCH, "submitted"),
        (StopReason.ABSOLUTE_STEPS, PATCH, "submitted (exit_cost)"),
        (StopReason.CONTEXT_OVERFLOW, PATCH, "submitted (exit_context)"),
        (StopReason.CONTEXT_OVERFLOW, "", "exit_context"),
        (StopReason.REQUEST_REFUSED, PATCH, "submitted (exit_api)"),
        (StopReason.REFUSAL, "", "exit_error"),
        (StopReason.INTERRUPTED, "", "exit_environment_error"),
    ],
)
def test_exit_status_round_trips(tmp_path: Path, reason: StopReason, patch: str, status: str) -> None:
    content = sweagent.write(solved_unit([LOOK], [FINISH], reason=reason, patch=patch))
    file = tmp_path / f"{ID}.traj"
    file.write_bytes(content)
    assert json.loads(content)["info"]["exit_status"] == status
    recording = read_files(file).by_id[ID]
    assert (recording.stop_reason, recording.patch or "", recording.scaffold) == (reason, patch, "r2egym")
    assert [action.tool for action in recording.actions] == ["execute_bash", "finish"]
    expected = {} if reason is StopReason.INTERRUPTED else {ID: patch}
    if expected or patch:
        assert predictions.read(file, [ID], [ID]).patches == expected
