from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import create_model

from swe_argo.steps.agents.formats import (
    ParsedTrajectory,
    SolvedUnit,
    atif,
    mini_swe_agent,
    openhands,
    r2egym,
    sweagent,
    turns_with_actions,
)
from swe_argo.steps.agents.formats.reading import read_row
from swe_argo.steps.agents.formats.writers import open_writers
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.contracts.registry import AGENTS, is_model_agent
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Metrics, MetricsExtra, StopReason, Trajectory, Turn
from tests.steps.agents.solved_units import ID, PATCH, Call, agent_turn, run_file, solved_unit, trajectory
from tests.steps.datasets.sample_rows import PROPERTY

WRITERS: dict[str, Callable[[SolvedUnit], bytes]] = {
    "r2egym": r2egym.write,
    "openhands": openhands.write,
    "sweagent": sweagent.write,
    "mini": mini_swe_agent.write,
    "atif": atif.write,
}
LOOK: Call = ("execute_bash", {"cmd": "ls"}, "a.py\n")
EDIT: Call = (
    "file_editor",
    {"command": "str_replace", "path": "/testbed/a.py", "old_str": "  a = 1\n", "new_str": "  a = 2\n"},
    "edited",
)
VIEW: Call = ("str_replace_editor", {"command": "view", "path": "/testbed", "view_range": [1, 2]}, "a.py")
FINISH: Call = ("finish", {"command": "submit"}, "<<<Finished>>>")

# JSON keeps every text but lone surrogates; a reader of other projects may not take those.
_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_TOOLS = st.sampled_from(
    ("bash", "execute_bash", "file_editor", "str_replace_editor", "search", "think", "finish", "submit", "other_tool")
)
_CALL: st.SearchStrategy[Call] = st.tuples(
    _TOOLS,
    st.dictionaries(st.sampled_from(("command", "cmd", "path", "view_range")) | _TEXT, _VALUE, max_size=4),
    _TEXT,
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def read(data: bytes) -> ParsedTrajectory:
    recorded = read_row(json.loads(data))
    assert recorded is not None
    return recorded


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("text", ["function_calling", "text"])
def test_export_can_be_replayed(form: str, text: Any) -> None:
    recorded = read(WRITERS[form](solved_unit([LOOK], [EDIT], [FINISH], form=text)))
    look, edit, finish = recorded.actions
    assert look.arguments == ({"command": "ls"} if form == "openhands" else {"cmd": "ls"})
    assert edit.arguments["new_str"] == ("a = 2" if form == "r2egym" else "  a = 2\n"), "its readers strip values"
    assert (look.observation, finish.tool) == ("a.py\n", "finish")
    assert (recorded.instance_id, recorded.model, recorded.is_outcome) == (ID, "openai/m", True)
    assert recorded.stop_reason is StopReason.FINISHED
    assert recorded.patch == (None if form == "atif" else PATCH)  # ATIF has no place for it


@pytest.mark.parametrize("form", ["sweagent", "mini", "atif"])
@settings(PROPERTY, max_examples=40)
@given(turns=st.lists(st.lists(_CALL, min_size=1, max_size=3), max_size=4))
def test_formats_keep_every_call(form: str, turns: list[list[Call]]) -> None:
    recorded = read(WRITERS[form](solved_unit(*turns)))
    expected = [(tool, arguments) for calls in turns for tool, arguments, _ in calls]
    assert [(action.tool, action.arguments) for action in recorded.actions] == expected


@pytest.mark.parametrize("form", ["sweagent", "mini", "atif"])
def test_formats_keep_reason_and_scaffold(form: str) -> None:
    write = WRITERS[form]
    for reason in StopReason:
        recorded = read(write(solved_unit([LOOK], reason=reason)))
        assert recorded.stop_reason is reason
        assert recorded.is_outcome is (reason is not StopReason.INTERRUPTED)
    for agent in filter(is_model_agent, AGENTS):
        assert read(write(solved_unit([LOOK], agent=agent))).scaffold == agent


@pytest.mark.parametrize("form", WRITERS)
def test_malformed_turns_are_no_actions(form: str) -> None:
    whole = trajectory([LOOK], [FINISH])
    bad = agent_turn(5, [("frob", {}, "there is no tool frob")], thought="frob it", metrics=Metrics(prompt_tokens=1))
    bad = bad.model_copy(update={"extra": {"malformed": "unknown_tool"}})
    blank = Turn(step_id=6, source="agent", message="", metrics=Metrics(prompt_tokens=1))
    correction = Turn(step_id=7, source="user", message="call a tool")
    steps = [*whole.steps, bad, blank, correction]
    unit = replace(solved_unit(), trajectory=whole.model_copy(update={"steps": steps}))
    actions = read(WRITERS[form](unit)).actions
    shell = "bash_session" if form == "openhands" else "execute_bash"
    assert [action.tool for action in actions] == [shell, "finish"]
    observations = [act.observation for _, actions in turns_with_actions(unit.trajectory) for act in actions]
    assert observations[2:] == ["there is no tool frob", "call a tool"]
    assert b"frob" in WRITERS[form](unit)


def test_r2e_gym_answer_without_call_replays() -> None:
    row = json.loads(r2egym.write(solved_unit([LOOK], [], [FINISH])))
    assert row["trajectory_steps"][1]["action"] == "<function=>\n</function>"
    recorded = read_row(row)
    assert recorded is not None
    assert [action.tool for action in recorded.actions] == ["execute_bash", "finish"]


@PROPERTY
@given(
    name=st.sampled_from(["trajectory_steps", "history", "messages", "steps"]),
    value=_JSON,
    row=st.dictionaries(st.text(max_size=10), _JSON, max_size=3),
)
def test_read_row_survives_any_row(name: str, value: Any, row: dict[str, Any]) -> None:
    markers = {"schema_version": "ATIF-v1.7", "instance_id": row, "info": value, "trajectory_format": value}
    for form in ({"trajectory_steps": value}, {"history": value, "instance_id": "i"}, {"messages": value}):
        for whole in (row | form, row | form | markers, row | markers | {name: value}, {name: [value, row, markers]}):
            try:
                recorded = read_row(whole)
            except ValueError:
                continue
            assert recorded is None or isinstance(recorded, ParsedTrajectory)


@pytest.mark.parametrize("form", WRITERS)
@settings(PROPERTY, max_examples=40)
@given(data=st.data())
def test_read_row_survives_damage(form: str, data: st.DataObject) -> None:
    row = json.loads(WRITERS[form](solved_unit([LOOK], [EDIT], [FINISH])))
    _damage(row, data)
    try:
        read_row(row)
    except ValueError:
        return


@pytest.mark.parametrize("form", ["sweagent", "mini"])
def test_stop_reason_may_have_any_type(form: str) -> None:
    row = json.loads(WRITERS[form](solved_unit([LOOK], [EDIT], [FINISH])))
    places = [value for value in _values(row) if isinstance(value, dict) and "stop_reason" in value]
    assert places
    reasons: list[Any] = [[], {}, 0, None, "no reason of ours"]
    for reason in reasons:
        for place in places:
            place["stop_reason"] = reason
        recorded = read_row(row)
        assert recorded is not None
        assert recorded.instance_id


def _values(value: Any) -> Iterator[Any]:
    """A JSON value and all within it."""
    yield value
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for inner in within:
        yield from _values(inner)


def _damage(value: Any, data: st.DataObject) -> None:
    """Put something else in one place of a JSON value."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        place = data.draw(st.sampled_from(keys))
        inner = value[place]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            value = inner
            continue
        value[place] = data.draw(_JSON)
        return


# -- layouts that the projects' own readers expect

R2E_STEP: dict[str, Any] = {
    **dict.fromkeys(["step_idx", "step_count"], int),
    **dict.fromkeys(["thought", "action", "observation"], str),
    **dict.fromkeys([f"token_usage_{kind}" for kind in ("prompt", "completion", "total")], int),
    **dict.fromkeys(["llm_exec_time", "env_exec_time", "total_step_time", "total_time_traj"], float),
    "done": bool,
    "info": dict[str, Any],
}
R2E_TRAJECTORY: dict[str, Any] = {
    **dict.fromkeys(["problem_statement", "docker_image", "exit_reason", "output_patch"], str),
    **dict.fromkeys(["max_steps", "max_steps_absolute", "max_token_limit"], int),
    **dict.fromkeys(["max_llm_time", "max_exec_time", "max_total_time"], int),
    **dict.fromkeys(["env_args", "agent_args"], dict[str, Any]),
    "exp_name": str | None,
    "ds": dict[str, Any] | None,
    "reward": float | None,
    "reward_calc_time": float | None,
    "test_output": str | None,
}


def r2e_model(name: str, fields: dict[str, Any]) -> Any:
    """Return a model with the fields and types of a class of R2E-Gym."""
    definitions: dict[str, Any] = {field: (kind, ...) for field, kind in fields.items()}
    return create_model(name, **definitions)


def test_r2e_gym_row_has_every_field() -> None:
    half: Call = ("bash", {"command": "echo \ud83d", "\udc80": ["\udc80"]}, "half \udc80")
    line = r2egym.write(solved_unit([LOOK], [EDIT], [half], [FINISH], patch="\udce9"))
    step: Any = r2e_model("TrajectoryStep", R2E_STEP)
    row = r2e_model("Trajectory", R2E_TRAJECTORY | {"trajectory_steps": list[step]}).model_validate_json(line)
    first, last = row.trajectory_steps[0], row.trajectory_steps[-1]
    assert first.action == "<function=execute_bash>\n  <parameter=cmd>ls</parameter>\n</function>"
    assert (first.thought, first.observation, first.done) == ("I look.", "a.py\n", False)
    assert (first.token_usage_prompt, first.token_usage_completion, first.token_usage_total) == (100, 10, 110)
    assert (first.llm_exec_time, first.env_exec_time, first.total_step_time) == (1.5, 0.25, 1.75)
    assert (last.done, last.step_count, last.total_time_traj) == (True, 4, 7.0)
    assert (row.exit_reason, row.reward, row.test_output) == ("agent", 1.0, "1 passed\n")
    assert row.output_patch == "\ufffd"
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    ("steps", "word"), [(40, "max_step_limit"), (41, "max_step_limit"), (43, "agent_max_step_limit")]
)
def test_r2e_gym_step_limit_reasons(steps: int, word: str) -> None:
    unit = solved_unit(*[[LOOK]] * steps, reason=StopReason.MAX_STEPS)
    assert json.loads(r2egym.write(unit))["exit_reason"] == word
    by_default = replace(unit, run=_without_limits("r2egym"))
    assert json.loads(r2egym.write(by_default))["exit_reason"] == word


def test_writers_fill_in_step_limits() -> None:
    for agent, soft_limit, ended in (("r2egym", 40, 50), ("mini-swe-agent", 250, 250), ("replay", 1, 1)):
        unit = replace(solved_unit([LOOK], agent=agent), run=_without_limits(agent))
        row = json.loads(r2egym.write(unit))
        assert (row["max_steps"], row["max_steps_absolute"]) == (soft_limit, ended)
        own = json.loads(mini_swe_agent.write(unit))["info"]["config"]["agent"]
        assert own["step_limit"] == (0 if agent == "replay" else ended)
    assert openhands.run_metadata(_without_limits("openhands"))["max_iterations"] == 100


def _without_limits(agent: str) -> RunFile:
    return run_file().model_copy(update={"spec": RunSpec.model_validate({"agent": {"name": agent}})})


COST = {"model_stats": {"instance_cost": 3.1}, "config": {"agent": {"cost_limit": 3}}}


@pytest.mark.parametrize(
    ("form", "word", "reason", "good"),
    [
        ("r2egym", "agent", StopReason.FINISHED, True),
        ("r2egym", "max_step_limit", StopReason.MAX_STEPS, True),
        ("r2egym", "agent_max_step_limit", StopReason.MAX_STEPS, True),
        ("r2egym", "abs_step_limit", StopReason.ABSOLUTE_STEPS, True),
        ("r2egym", "token_limit", StopReason.CONTEXT_LIMIT, True),
        ("r2egym", "traj_time_limit", StopReason.TIMEOUT, True),
        ("r2egym", "llm_query_error", None, False),
        ("r2egym", "env_exception", None, False),
        ("mini", "Submitted", StopReason.FINISHED, True),
        ("mini", "LimitsExceeded", StopReason.ABSOLUTE_STEPS, True),
        ("mini, dear", "LimitsExceeded", StopReason.COST_LIMIT, True),
        ("mini", "TimeExceeded", StopReason.TIMEOUT, True),
        ("mini", "RepeatedFormatError", StopReason.MALFORMED, True),
        ("mini", "ContextWindowExceededError", StopReason.CONTEXT_OVERFLOW, True),
        ("mini", "KeyError", None, True),
        ("openhands", None, None, True),
        ("openhands", "RuntimeError: Agent reached maximum iteration in headless mode.", "absolute_steps", True),
        ("openhands", "AgentStuckInLoopError: Agent got stuck in a loop", None, True),
        ("openhands", "LLMContextWindowExceedError", "context_overflow", True),
        ("openhands", "AgentRuntimeDisconnectedError: 404", None, False),
        ("openhands", "litellm.BadRequestError: Budget has been exceeded! Current cost: 3", None, False),
    ],
)
def test_exit_words_are_read(form: str, word: str | None, reason: StopReason | None, *, good: bool) -> None:
    rows: dict[str, dict[str, Any]] = {
        "r2egym": {"trajectory_steps": [], "exit_reason": word},
        "mini": {"messages": [], "info": {"exit_status": word}},
        "mini, dear": {"messages": [], "info": {"exit_status": word} | COST},
        "openhands": {"instance_id": ID, "history": [], "error": word},
    }
    recorded = read_row(rows[form])
    assert recorded is not None
    assert (recorded.stop_reason, recorded.is_outcome) == (reason, good)


def test_mini_swe_agent_file_layout() -> None:
    shell: Call = ("bash", {"command": "ls"}, "<returncode>0</returncode>\n<output>\na.py\n</output>")
    row = json.loads(mini_swe_agent.write(solved_unit([shell], agent="mini-swe-agent")))
    assert row["trajectory_format"] == "mini-swe-agent-1.1"
    assert row["instance_id"] == ID
    info = row["info"]
    assert (info["exit_status"], info["submission"]) == ("Submitted", PATCH)
    assert info["model_stats"] == {"instance_cost": 0.01, "api_calls": 1}
    assert info["config"]["model"]["model_name"] == "openai/m"
    roles = [message["role"] for message in row["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "exit"]
    answer, result = row["messages"][2:4]
    assert answer["extra"]["actions"] == [{"command": "ls", "tool_call_id": "c3-0"}]
    assert answer["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert answer["extra"]["cost"] == 0.01
    assert result["tool_call_id"] == "c3-0"
    assert result["extra"] == {"raw_output": "a.py\n", "returncode": 0, "exception_info": ""}


def test_openhands_row_layout() -> None:
    unit = solved_unit([LOOK], [EDIT], [VIEW], [("search", {"search_term": "x"}, "found")], [FINISH])
    row = json.loads(openhands.write(unit))
    assert row["test_result"]["git_patch"] == PATCH
    assert row["test_result"]["report"]["resolved"] is True
    assert (row["error"], row["attempt"], row["instruction"]) == (None, 1, "Mend it.")
    assert row["metrics"]["accumulated_cost"] == 0.05
    actions = [event["action"] for event in row["history"] if "action" in event]
    assert actions == ["system", "message", "run", "edit", "read", "call_tool_mcp", "finish"]
    run, output = row["history"][2:4]
    assert run["args"]["command"] == "ls"
    assert run["args"]["thought"] == "I look."
    assert (output["observation"], output["cause"], output["content"]) == ("run", run["id"], "a.py\n")
    assert output["extras"]["metadata"]["exit_code"] == 0
    assert row["history"][-1]["extras"]["agent_state"] == "finished"
    assert all("timestamp" in event for event in row["history"])
    required = {"agent_class", "llm_config", "max_iterations", "eval_output_dir", "start_time", "git_commit"}
    assert required <= row["metadata"].keys()
    assert row["metadata"]["llm_config"]["model"] == "openai/m"
    assert "api_key" not in json.dumps(row)


def test_openhands_names_the_wrapped_tool() -> None:
    search: Call = ("search", {"search_term": "x", "path": "b"}, "found")
    data = openhands.write(solved_unit([search]))
    assert b"call_tool_mcp" in data
    assert read(data).actions == [Action(tool="search", arguments=search[1], observation="found")]


# -- ATIF ------------------------------------------------------------------------------------------------------------


def test_atif_expands_shared_prompts() -> None:
    def ids(prompt: list[int], completion: list[int], shared: int | None) -> Metrics:
        extra = MetricsExtra(shared_prompt_ids=shared)
        return Metrics(prompt_token_ids=prompt, completion_token_ids=completion, extra=extra)

    whole = trajectory()
    turns = [
        agent_turn(3, [LOOK], metrics=ids([1, 2], [3], None)),
        agent_turn(4, [LOOK], metrics=Metrics(prompt_tokens=1)),
        agent_turn(5, [LOOK], metrics=ids([4], [5, 6], 3)),
        agent_turn(6, [LOOK], metrics=ids([7], [8], 5)),
        agent_turn(7, [LOOK], metrics=ids([9], [], None)),
    ]
    extended = whole.model_copy(update={"steps": [*whole.steps, *turns]})
    steps = atif.with_whole_prompts(extended).steps[2:]
    prompt_ids = [step.metrics.prompt_token_ids for step in steps if step.metrics]
    assert prompt_ids == [[1, 2], None, [1, 2, 3, 4], [1, 2, 3, 4, 5, 7], [9]]
    assert "shared_prompt_ids" not in extended.model_copy(update={"steps": steps}).model_dump_json(exclude_none=True)
    broken = extended.model_copy(update={"steps": [turns[2]]})
    with pytest.raises(ValueError, match="step 5 shares 3 prompt ids, but the previous call has only 0"):
        atif.with_whole_prompts(broken)


def test_atif_expands_every_attempt() -> None:
    attempt = trajectory([LOOK])
    turn = agent_turn(1, [LOOK], metrics=Metrics(prompt_token_ids=[1], extra=MetricsExtra(shared_prompt_ids=1)))
    before = agent_turn(1, [LOOK], metrics=Metrics(prompt_token_ids=[7]))
    attempt = attempt.model_copy(update={"steps": [before, turn.model_copy(update={"step_id": 2})]})
    whole = atif.with_whole_prompts(trajectory([LOOK]).model_copy(update={"subagent_trajectories": [attempt]}))
    assert whole.subagent_trajectories
    second = whole.subagent_trajectories[0].steps[1].metrics
    assert second
    assert second.prompt_token_ids == [7, 1]


def test_atif_text_is_valid_unicode() -> None:
    half: Call = ("bash", {"command": "echo \ud83d"}, "half \udc80")
    data = atif.write(solved_unit([half]))
    json.loads(data)["steps"][2]["observation"]["results"][0]["content"].encode()
    assert b"\\ud83d" not in data
    Trajectory.from_bytes(data)


harbor = pytest.mark.skipif(importlib.util.find_spec("harbor") is None, reason="harbor is not installed")


@harbor
@pytest.mark.parametrize("form", ["function_calling", "text"])
def test_harbor_accepts_our_atif(form: Any) -> None:
    harbors = importlib.import_module("harbor.models.trajectories").Trajectory
    unit = solved_unit([LOOK], [EDIT, VIEW], [FINISH], form=form)
    attempt = unit.trajectory.model_copy(update={"trajectory_id": "night/x/1/attempt-1"})
    several = unit.trajectory.model_copy(update={"subagent_trajectories": [attempt]})
    for data in (unit.trajectory.to_bytes(), atif.write(unit), several.to_bytes()):
        harbors.model_validate_json(data)


def test_foreign_atif_has_no_scaffold() -> None:
    row = json.loads(atif.write(solved_unit([LOOK], agent="openhands")))
    del row["extra"]
    recorded = read_row(row)
    assert recorded is not None
    assert recorded.scaffold is None
    assert recorded.actions == [Action(tool="execute_bash", arguments={"cmd": "ls"}, observation="a.py\n")]


def test_forced_folder_replaces_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("of before")
    with open_writers(target, "atif", run_file(), 1, force=True) as writers:
        writers.add_unit(solved_unit([LOOK]))
    assert (target / ID / "trajectory.json").is_file()
    assert list(tmp_path.iterdir()) == [target], "what was there before is gone"
