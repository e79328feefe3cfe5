"""Function calls, right ones and wrong ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents.calls import call_format
from swe_argo.steps.agents.calls.parse_result import Malformed, ParsedCall, Problem, Rules
from swe_argo.steps.agents.tools.toolsets import TOOLSETS, toolset
from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.reply import Reply, RequestedCall
from tests.steps.agents.calls.replies import reply

CALLS = call_format(True, Rules("one"))
FIRST, ALL = call_format(True, Rules("first")), call_format(True, Rules("all"))
TOOLS = toolset("openhands")


def parsed(name: str, arguments: str, scaffold: str = "openhands") -> ParsedCall:
    calls = CALLS.parse(reply("because", (name, arguments)), toolset(scaffold))
    assert isinstance(calls, list), calls
    [call] = calls
    return call


def wrong(*calls: tuple[str, str], text: str = "") -> Malformed:
    answer = CALLS.parse(reply(text, *calls), TOOLS)
    assert isinstance(answer, Malformed), answer
    assert "exactly one function call" in answer.correction, "every correction says what is right"
    return answer


# -- right


def test_a_call_has_its_id_thought_and_arguments() -> None:
    call = parsed("execute_bash", '{"command": "ls", "timeout": 5}')
    assert (call.tool.name, call.call_id, call.thought) == ("execute_bash", "id-0", "because")
    assert call.arguments == {"command": "ls", "timeout": 5.0}


@pytest.mark.parametrize(
    ("given_", "typed"),
    [
        ({"view_range": "[1, 2]"}, {"view_range": [1, 2]}),
        ({"view_range": ["1", 2.0]}, {"view_range": [1, 2]}),
        ({"insert_line": "7"}, {"insert_line": 7}),
        ({"old_str": None, "view_range": None}, {}),
        ({"security_risk": "LOW", "summary": "x", "made_up": [1]}, {}),
        ({"new_str": ""}, {"new_str": ""}),
    ],
)
def test_what_is_meant_is_taken(given_: dict[str, object], typed: dict[str, object]) -> None:
    call = parsed("str_replace_editor", json.dumps({"command": "view", "path": "/a", **given_}))
    assert call.arguments == {"command": "view", "path": "/a", **typed}


def test_json_that_is_nearly_right_is_taken() -> None:
    assert parsed("execute_bash", '{"command": "a\nb"}').arguments == {"command": "a\nb"}, "a bare line break"
    assert parsed("execute_bash", json.dumps('{"command": "ls"}')).arguments == {"command": "ls"}, "encoded twice"
    assert parsed("submit", "", "sweagent").tool.ends
    assert parsed("finish", "{}").tool.ends


def test_the_first_of_several_calls_is_the_only_one_that_is_known_of() -> None:
    """R2E-Gym makes the first call and takes the others out of the conversation."""
    two = reply("so", ("execute_bash", '{"command": "ls"}'), ("nothing", "no JSON"))
    calls = FIRST.parse(two, TOOLS)
    assert isinstance(calls, list)
    assert [call.arguments for call in calls] == [{"command": "ls"}]
    said = FIRST.to_message(two)
    assert [each["id"] for each in said["tool_calls"]] == ["id-0"]
    assert FIRST.answer(two, ["seen"]) == [{"role": "tool", "tool_call_id": "id-0", "content": "seen"}]


def test_all_of_several_calls_are_made_or_none() -> None:
    """OpenHands makes all calls of an answer; with one that cannot be made, none."""
    right, other = ("execute_bash", '{"command": "ls"}'), ("think", '{"thought": "x"}')
    calls = ALL.parse(reply("", right, other, right), TOOLS)
    assert isinstance(calls, list)
    assert [call.call_id for call in calls] == ["id-0", "id-1", "id-2"]
    wrong_one = ALL.parse(reply("", right, ("execute_bash", "{}")), TOOLS)
    assert isinstance(wrong_one, Malformed)
    assert wrong_one.problem is Problem.BAD_ARGUMENTS
    texts = ["a", "b"]
    assert [each["content"] for each in ALL.answer(reply("", right, other, right), texts)] == [*texts, "Not performed."]


@pytest.mark.parametrize(("scaffold", "taken"), [("openhands", True), ("r2egym", True), ("sweagent", False)])
def test_an_argument_that_a_tool_does_not_know_is_ignored_where_the_project_ignores_it(
    scaffold: str, taken: bool
) -> None:
    tools = toolset(scaffold)
    shell = next(tool for tool in tools.tools if tool.kind == "shell")
    arguments = json.dumps({shell.parameters[0].name: "ls", "shell": "zsh"})
    answer = CALLS.parse(reply("", (shell.name, arguments)), tools)
    assert isinstance(answer, list) is taken
    if isinstance(answer, Malformed):
        assert "no parameter `shell`" in answer.correction


# -- wrong


def test_no_call_and_an_empty_answer_are_told_apart() -> None:
    assert wrong(text="done").problem is Problem.NO_CALL
    assert "`finish`" in wrong(text="done").correction
    assert wrong().problem is Problem.EMPTY
    written = wrong(text="<function=execute_bash><parameter=command>ls</parameter></function>")
    assert "in the text does not count" in written.correction


def test_where_one_call_is_asked_for_two_are_one_too_many() -> None:
    two = wrong(("execute_bash", '{"command": "ls"}'), ("finish", "{}"))
    assert two.problem is Problem.TWO_CALLS
    assert "2 tools (`execute_bash`, `finish`)" in two.correction


@pytest.mark.parametrize(
    ("name", "arguments", "problem", "said"),
    [
        ("execute_bsh", "{}", Problem.UNKNOWN_TOOL, "Did you mean `execute_bash`?"),
        ("", "{}", Problem.UNKNOWN_TOOL, "There is no tool"),
        ("execute_bash", '{"command": "ls"', Problem.INVALID_JSON, "not valid JSON"),
        ("execute_bash", "ls", Problem.INVALID_JSON, "not valid JSON"),
        ("execute_bash", '["ls"]', Problem.INVALID_JSON, "not an object"),
        ("execute_bash", "{}", Problem.BAD_ARGUMENTS, "`command` is missing"),
        ("execute_bash", '{"cmd": "ls"}', Problem.BAD_ARGUMENTS, "`command` is missing"),
        ("execute_bash", '{"command": ["ls"]}', Problem.BAD_ARGUMENTS, "must be a text"),
        ("execute_bash", '{"command": null}', Problem.BAD_ARGUMENTS, "must be a text"),
        ("execute_bash", '{"command": "ls", "timeout": "soon"}', Problem.BAD_ARGUMENTS, "a number above 0"),
        ("execute_bash", '{"command": "ls", "timeout": NaN}', Problem.BAD_ARGUMENTS, "a number above 0"),
        ("execute_bash", '{"command": "ls", "is_input": "yes"}', Problem.BAD_ARGUMENTS, "`true` or `false`"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(name: str, arguments: str, problem: Problem, said: str) -> None:
    answer = wrong((name, arguments))
    assert answer.problem is problem
    assert said in answer.correction
    assert "Nothing was done" in answer.correction


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["command", "path", "view_range", "x"]), inner),
)
ARGUMENTS = st.text() | JSON.map(json.dumps) | st.just("[" * 100_000)
NAMES = st.text() | st.sampled_from(["execute_bash", "str_replace_editor", "finish", "file_editor"])


@settings(deadline=None)
@given(
    st.text(),
    st.lists(st.builds(RequestedCall, st.text(), NAMES, ARGUMENTS), max_size=3),
    st.sampled_from(sorted(TOOLSETS)),
)
def test_no_answer_whatever_breaks_it_and_any_can_be_sent_back(
    text: str, calls: list[RequestedCall], scaffold: str
) -> None:
    raw = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    answer = Reply(text, Metrics(), {"role": "assistant", "content": text, "tool_calls": raw}, calls=tuple(calls))
    result = CALLS.parse(answer, toolset(scaffold))
    if isinstance(result, Malformed):
        assert len(result.correction) < 4000
    said, followed = CALLS.to_message(answer), CALLS.answer(answer, ["seen"])
    ids = [call["id"] for call in said.get("tool_calls", [])] if calls else []
    assert len(set(ids)) == len(calls)
    for call in said["tool_calls"] if calls else []:
        assert isinstance(json.loads(call["function"]["arguments"]), dict), "vLLM refuses any other"
        assert call["function"]["name"].replace("_", "").replace("-", "").isalnum() or call["function"]["name"]
    assert [message.get("tool_call_id") for message in followed] == (ids or [None])
    assert calls or said["content"]


def test_a_right_call_goes_back_as_it_came() -> None:
    answer = reply("x", ("execute_bash", '{"command":  "ls"}'))
    assert CALLS.to_message(answer) == answer.message


def test_every_call_is_answered() -> None:
    two = reply("", ("a", "{}"), ("b", "{}"))
    assert CALLS.answer(two, ["wrong"]) == [
        {"role": "tool", "tool_call_id": "id-0", "content": "wrong"},
        {"role": "tool", "tool_call_id": "id-1", "content": "Not performed."},
    ]
    assert CALLS.answer(reply("x"), ["wrong"]) == [{"role": "user", "content": "wrong"}]


def test_the_endpoint_is_told_of_every_tool() -> None:
    definitions = CALLS.definitions(TOOLS)
    assert definitions is not None
    assert [each["function"]["name"] for each in definitions] == [tool.name for tool in TOOLS.tools]
    assert CALLS.instructions(TOOLS) == ""
    assert CALLS.name == "function_calling"


def test_an_example_of_a_path_is_where_the_repository_lies() -> None:
    answer = CALLS.parse(reply("", ("str_replace_editor", "{")), toolset("openhands", workdir="/gridprint"))
    assert isinstance(answer, Malformed)
    assert '"path": "/gridprint"' in answer.correction
    assert "/testbed" not in answer.correction
