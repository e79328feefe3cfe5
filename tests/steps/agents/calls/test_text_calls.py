"""Calls written in text, right ones and wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents.calls import call_format
from swe_argo.steps.agents.calls.parse_result import CallFormat, Malformed, ParsedCall, Problem, Rules
from swe_argo.steps.agents.tools.toolsets import TOOLSETS, toolset
from tests.steps.agents.calls.replies import reply

TEXT = call_format(False, Rules())
R2EGYM_TEXT = call_format(False, Rules("first", keeps_rest=False))
STOPPED = call_format(False, Rules("all", keeps_rest=False, stop=("</function",)))
R2EGYM = toolset("r2egym")
OPENHANDS = toolset("openhands")


def block(name: str, **values: str) -> str:
    inner = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in values.items())
    return f"<function={name}>\n{inner}</function>"


def parsed(text: str, scaffold: str = "r2egym") -> ParsedCall:
    calls = TEXT.parse(reply(text), toolset(scaffold))
    assert isinstance(calls, list), calls
    [call] = calls
    return call


def wrong(text: str, scaffold: str = "r2egym", finish: str = "stop") -> Malformed:
    answer = TEXT.parse(reply(text, finish=finish), toolset(scaffold))
    assert isinstance(answer, Malformed), answer
    assert "<function=" in answer.correction, "every correction shows a right answer"
    return answer


# -- right


def test_call_has_thought_and_arguments() -> None:
    call = parsed(f"<think>hm</think>I look.\n\n{block('execute_bash', cmd='ls -la')}\nand then")
    assert call.tool.name == "execute_bash"
    assert call.arguments == {"cmd": "ls -la"}
    assert call.thought == "<think>hm</think>I look."


def test_values_get_parameter_types() -> None:
    view = block("file_editor", command="\nview\n", path=" a.py ", view_range="[1, 20]", concise="True")
    assert parsed(view).arguments == {"command": "view", "path": " a.py ", "view_range": [1, 20], "concise": True}
    insert = block("file_editor", command="insert", path="a", insert_line=" 3 ", new_str="x")
    assert parsed(insert).arguments["insert_line"] == 3
    assert parsed(block("execute_bash", command="x", timeout="2.5", is_input="True"), "openhands").arguments == {
        "command": "x",
        "timeout": 2.5,
        "is_input": "true",
    }


def test_values_lose_outer_line_breaks() -> None:
    edit = block("file_editor", command="str_replace", path="a", old_str="\n    a = 1\n", new_str="\n\n    b\n\n")
    assert parsed(edit).arguments["old_str"] == "    a = 1"
    assert parsed(edit).arguments["new_str"] == "\n    b\n"
    create = block("file_editor", command="create", path="a", file_text="\nx = 1\n")
    assert parsed(create).arguments["file_text"] == "x = 1\n", "a file ends with its last line's end"


@pytest.mark.parametrize(
    "value",
    [
        "if a < b and c > d: print('</b>')",
        "echo '<function=execute_bash>'",
        "a </parameter> b",
        "x\n<parameter=cmd> is how it begins",
        "<![CDATA[ & &lt; ]]>",
    ],
)
def test_values_may_contain_tags(value: str) -> None:
    assert parsed(block("execute_bash", cmd=value)).arguments["cmd"] == value


def test_thoughts_contain_no_call() -> None:
    draft = block("execute_bash", cmd="rm -rf /")
    assert parsed(f"<think>or {draft}?</think>{block('execute_bash', cmd='ls')}").arguments == {"cmd": "ls"}
    only = wrong(f"<think>{draft}</think>I will.")
    assert only.problem is Problem.NO_CALL
    assert "</think>" in only.correction


def test_parser_accepts_small_slips() -> None:
    assert parsed('<function="execute_bash"> <parameter = cmd>ls</parameter></function>').arguments == {"cmd": "ls"}
    together = "<function=finish><parameter=command=submit</parameter></function>"
    assert parsed(together).arguments == {"command": "submit"}
    assert parsed("<function=finish></function>").tool.ends, "what else it says does not matter"
    assert parsed("<function=submit>\n</function>", "sweagent").tool.ends
    assert parsed(block("execute_bash", command="ls"), "sweagent").tool.name == "bash"
    assert parsed(block("execute_bash", command="ls", security_risk="LOW"), "openhands").arguments == {"command": "ls"}


IMAGINED = "\nEXECUTION RESULT of [execute_bash]:\nall tests pass\n"


@pytest.mark.parametrize("suffix", [IMAGINED, IMAGINED + block("finish", command="submit"), block("execute_bash")])
def test_parser_takes_first_block_only(suffix: str) -> None:
    """Another block, or a result that the model imagined: no project performs the second or refuses the first."""
    first = "I look.\n" + block("execute_bash", cmd="ls")
    assert parsed(first + suffix).arguments == {"cmd": "ls"}
    assert TEXT.to_message(reply(first + suffix))["content"] == first + suffix, "SWE-agent lets it stand"
    assert R2EGYM_TEXT.to_message(reply(first + suffix))["content"] == first
    assert STOPPED.to_message(reply(first + suffix))["content"] == first


@pytest.mark.parametrize("form", [TEXT, R2EGYM_TEXT, STOPPED], ids=["sweagent", "r2egym", "openhands"])
@pytest.mark.parametrize("name", ["execute_bash", "finish", "no_such_tool"])
def test_mentioned_tag_is_not_a_call(form: CallFormat, name: str) -> None:
    """An attempt must not end because the model says what it will call at the end."""
    spoken = f"I call <function={name}> when that is done.\n"
    calls = form.parse(reply(spoken + block("execute_bash", command="ls")), OPENHANDS)
    assert isinstance(calls, list), calls
    assert [(call.tool.name, call.arguments) for call in calls] == [("execute_bash", {"command": "ls"})]
    assert calls[0].thought == spoken.strip()
    alone = form.parse(reply(spoken), OPENHANDS)
    assert isinstance(alone, Malformed), alone
    assert form.to_message(reply(spoken))["content"] == spoken


@pytest.mark.parametrize("between", ["\n", "\n\n<function=execute_bash>\n", "\n<function=execute_bash>"])
def test_last_repeated_parameter_wins(between: str) -> None:
    """In one block, or in one that begins before the other has ended: all projects read it so."""
    first, last = "<parameter=cmd>rm -r x</parameter>", "<parameter=cmd>ls</parameter>"
    assert parsed(f"<function=execute_bash>\n{first}{between}{last}\n</function>").arguments == {"cmd": "ls"}


@pytest.mark.parametrize("end", ["", "\n", "\n</", "</function"])
def test_stop_word_completes_open_block(end: str) -> None:
    """OpenHands has answers end at ``</function``, and adds what is missing then."""
    open_block = "I look.\n<function=execute_bash>\n<parameter=command>ls</parameter>"
    calls = STOPPED.parse(reply(open_block + end), OPENHANDS)
    assert isinstance(calls, list)
    assert calls[0].arguments == {"command": "ls"}
    assert STOPPED.to_message(reply(open_block + end))["content"] == open_block + "\n</function>"
    assert isinstance(R2EGYM_TEXT.parse(reply(open_block + end), R2EGYM), Malformed)
    assert STOPPED.stop == ["</function"]
    assert R2EGYM_TEXT.stop is None


# -- wrong


def test_parser_tells_no_call_from_empty() -> None:
    assert wrong("I think I am done.").problem is Problem.NO_CALL
    assert "`finish`" in wrong("I think I am done.").correction
    for empty in ("", "  \n"):
        assert wrong(empty).problem is Problem.EMPTY


def test_unknown_tool_suggests_nearest() -> None:
    unknown = wrong(block("file_edit", command="view"))
    assert unknown.problem is Problem.UNKNOWN_TOOL
    assert "`file_edit`" in unknown.correction
    assert "Did you mean `file_editor`?" in unknown.correction


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (block("execute_bash"), "`cmd` is missing"),
        (block("execute_bash", command="ls"), "Did you mean `cmd`?"),
        (block("file_editor", command="delete", path="a"), "`view` or `create`"),
        (block("file_editor", command="insert", path="a", insert_line="three"), "whole number"),
        (block("file_editor", command="view", path="a", view_range="top"), "list of whole numbers"),
        (block("file_editor", command="view", path="a", concise="maybe"), "true or false"),
    ],
)
def test_correction_names_bad_argument(call: str, hint: str) -> None:
    bad = wrong(call)
    assert bad.problem is Problem.BAD_ARGUMENTS
    assert hint in bad.correction


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("<function=execute_bash>\n<parameter=cmd>ls</parameter>\n", "<function=...>"),
        ("<function=execute_bash>\n<parameter=cmd>ls", "<parameter=cmd>"),
        ("<function=execute_bash>\n<parameter=cmd>ls\n</function>", "<parameter=cmd>"),
        ("<function=execute_bash>", "<function=...>"),
    ],
)
def test_correction_names_unclosed_tag(text: str, tag: str) -> None:
    unclosed = wrong(text)
    assert unclosed.problem is Problem.UNCLOSED_TAG
    assert tag in unclosed.correction


def test_correction_reports_cut_answer() -> None:
    assert "cut off" in wrong("<function=execute_bash>\n<parameter=cmd>ls", finish="length").correction
    assert "cut off" not in wrong("<function=execute_bash>\n<parameter=cmd>ls").correction


def test_ambiguous_value_is_bad_argument() -> None:
    inner = block("execute_bash", cmd="ls")
    whole = block("file_editor", command="create", path="a", file_text=inner + "\nmore")
    assert wrong(whole).problem is Problem.BAD_ARGUMENTS


PIECES = st.sampled_from(
    ["<function=execute_bash>", "<function=", "<parameter=cmd>", "</parameter>", "</function>", "ls", "\n", "</think>"]
)


@settings(deadline=None)
@given(st.text() | st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join), st.sampled_from(sorted(TOOLSETS)))
@example("<function=" * 2000, "r2egym")
@example("<function=x><parameter=y>" + "</parameter> " * 2000, "r2egym")
def test_parser_survives_any_text(text: str, scaffold: str) -> None:
    answer = reply(text)
    result = TEXT.parse(answer, toolset(scaffold))
    if isinstance(result, list):
        [call] = result
        required = {name for name, parameter in call.tool.by_name.items() if parameter.required}
        assert call.tool.ends or required <= set(call.arguments)
    else:
        assert result.correction
        assert len(result.correction) < 4000
    assert TEXT.to_message(answer)["content"]
    assert STOPPED.to_message(answer)["content"]


@pytest.mark.parametrize(
    "unit", ["<parameter=a>1</parameter>x", "<function=a><parameter=b>1</parameter>x", "<function="]
)
def test_parser_handles_long_repetition(unit: str) -> None:
    # Longer than any answer: where every tag is looked for behind every other, this takes longer than a test may.
    wrong(f"<function=execute_bash>{unit * (4_000_000 // len(unit))}")


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_value_round_trips(value: str) -> None:
    if "</parameter>" in value or "</think>" in value:
        return
    assert parsed(block("execute_bash", cmd=f"\n{value}\n")).arguments["cmd"] == value


# -- the conversation


def test_instructions_list_every_tool() -> None:
    for tools in TOOLSETS.values():
        instructions = TEXT.instructions(tools)
        for tool in tools.tools:
            assert f": {tool.name} ----" in instructions
            assert tool.description in instructions
            for parameter in tool.parameters:
                assert (
                    f") {parameter.name} ({parameter.type}, {'required' if parameter.required else 'optional'})"
                    in instructions
                )
        assert "</function>" in instructions
    assert TEXT.definitions(R2EGYM) is None
    assert TEXT.name == "text"


def test_tool_results_are_user_messages() -> None:
    assert TEXT.answer(reply("x"), ["seen"]) == [{"role": "user", "content": "seen"}]
    assert TEXT.to_message(reply("x")) == {"role": "assistant", "content": "x"}
    assert TEXT.to_message(reply(""))["content"]


def test_prompt_example_is_a_valid_call() -> None:
    for tools in TOOLSETS.values():
        instructions = TEXT.instructions(tools)
        example_block = instructions[
            instructions.rindex("<function=") : instructions.rindex("</function>") + len("</function>")
        ]
        assert isinstance(TEXT.parse(reply(example_block), tools), list)
