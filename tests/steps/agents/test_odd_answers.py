"""Answers that are not one whole call: each scaffold does with them what its own project does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swe_argo.steps.agents.tools.toolsets import TOOLSETS
from swe_argo.steps.contracts.trajectory import StopReason
from tests.model_server import Answer, Call, play
from tests.steps.agents.test_loop import FINISH, FORMATS, SHELL, Work, bash, finish, script_for, work

__all__ = ["work"]


def touch(name: str, scaffold: str, **more: str) -> Call:
    return Call("execute_bash", {SHELL[scaffold]: f"touch {name}", **more})


def block(name: str, scaffold: str, **more: str) -> str:
    values = {SHELL[scaffold]: f"touch {name}", **more}
    inner = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in values.items())
    return f"<function=execute_bash>\n{inner}</function>"


def created_files(work: Work) -> set[str]:
    return {path.name for path in work.box.testbed.iterdir()} & {"one", "two", "three"}


def wrong_turns(attempt: Any) -> int:
    return sum("malformed" in (turn.extra or {}) for turn in attempt.recorder.turns)


@pytest.mark.parametrize(
    ("scaffold", "files", "malformed"),
    [("r2egym", {"one"}, 0), ("openhands", {"one", "two", "three"}, 0), ("sweagent", set(), 1)],
)
def test_parallel_calls_follow_project(work: Work, scaffold: str, files: set[str], malformed: int) -> None:
    """R2E-Gym makes the first, OpenHands all, SWE-agent none and asks again."""
    three = Answer("", calls=tuple(touch(name, scaffold) for name in ("one", "two", "three")))
    attempt = work(script_for(three, three, three, bash("true", scaffold), finish(scaffold)), scaffold, max_malformed=4)
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == files
    assert wrong_turns(attempt) == 3 * malformed
    answered = [message["tool_call_id"] for message in attempt.messages if message["role"] == "tool"]
    assert answered == [
        tool_call["id"] for message in attempt.messages for tool_call in message.get("tool_calls") or []
    ]
    assert len(answered) == (1 if scaffold == "r2egym" else 3) * 3 + 1 + (scaffold == "sweagent")
    results = [result for result in attempt.observed if result.extra]
    assert len(results) == {"r2egym": 3, "openhands": 9, "sweagent": 1}[scaffold] + 2, "SWE-agent submits twice"


def test_openhands_counts_calls_as_steps(work: Work) -> None:
    three = Answer("", calls=tuple(touch(name, "openhands") for name in ("one", "two", "three")))
    attempt = work(script_for(three, three, three, finish("openhands")), "openhands", max_steps=6)
    assert attempt.reason is StopReason.ABSOLUTE_STEPS
    assert attempt.recorder.usage.calls == 2


def test_openhands_stops_at_finish(work: Work) -> None:
    both = Answer("", calls=(touch("one", "openhands"), Call("finish", {"message": "."}), touch("two", "openhands")))
    attempt = work(script_for(both), "openhands")
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == {"one"}
    [turn] = [turn for turn in attempt.recorder.turns if turn.tool_calls]
    assert len(turn.tool_calls or []) == 3
    assert turn.observation is not None
    assert len(turn.observation.results) == 2


@FORMATS
@pytest.mark.parametrize(("scaffold", "files"), [("r2egym", {"one"}), ("openhands", {"one"}), ("sweagent", set())])
def test_unknown_argument_per_project(work: Work, scaffold: str, files: set[str], fn_calling: bool) -> None:
    """OpenHands and R2E-Gym go on without it, SWE-agent asks again."""
    odd = Answer("", calls=(touch("one", scaffold, shell="zsh", security_risk="LOW"),))
    written = Answer(block("one", scaffold, shell="zsh", security_risk="LOW"))
    script = script_for(odd if fn_calling else written, finish(scaffold), fn_calling=fn_calling)
    attempt = work(script, scaffold, fn_calling=fn_calling)
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == files
    assert wrong_turns(attempt) == (not files)


@pytest.mark.parametrize("suffix", ["\nOBSERVATION:\nit is there\n", "\n{two}", "\nOBSERVATION:\nfine\n{finish}"])
@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_only_first_text_block_is_made(work: Work, scaffold: str, suffix: str) -> None:
    first = "I make one.\n" + block("one", scaffold)
    behind = suffix.format(two=block("two", scaffold), finish=f"<function={FINISH[scaffold]}>\n</function>")
    script = script_for(Answer(first + behind), Answer(first + behind), finish(scaffold), fn_calling=False)
    attempt = work(script, scaffold, fn_calling=False)
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == {"one"}
    assert attempt.recorder.usage.calls == 3 + (scaffold == "sweagent")
    assert wrong_turns(attempt) == 0
    expected = first + behind if scaffold == "sweagent" else first
    assert attempt.messages[2]["content"] == expected


def test_openhands_stops_at_call_end(work: Work) -> None:
    """``</function`` is sent as a stop word, so its endpoint never brings the end of a block."""
    open_block = block("one", "openhands").removesuffix("</function>")
    attempt = work(script_for(Answer(open_block), finish("openhands"), fn_calling=False), "openhands", fn_calling=False)
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == {"one"}
    assert [request.body.get("stop") for request in attempt.server.calls] == [["</function"]] * 2
    assert attempt.messages[2]["content"] == open_block + "</function>"
    for scaffold, fn_calling in (("openhands", True), ("r2egym", False), ("sweagent", False)):
        script = script_for(finish(scaffold), fn_calling=fn_calling)
        assert "stop" not in work(script, scaffold, fn_calling=fn_calling).server.calls[0].body


@FORMATS
@pytest.mark.parametrize(
    ("scaffold", "reason", "calls"),
    [
        ("r2egym", StopReason.FINISHED, 7),
        ("openhands", StopReason.FINISHED, 7),
        ("sweagent", StopReason.MALFORMED, 3),
    ],
)
def test_malformed_answers_end_swe_agent(
    work: Work, scaffold: str, reason: StopReason, calls: int, fn_calling: bool
) -> None:
    """It asks three times for one step; the others go on to their last step."""
    odd = [
        Answer("I think I am done."),
        Answer("", calls=(Call("rm_rf", {}),)) if fn_calling else Answer("<function=rm_rf></function>"),
        Answer("", calls=(Call("execute_bash", "[1]"),)) if fn_calling else Answer("<function=execute_bash>"),
    ]
    script = script_for(*odd, *odd, finish(scaffold), fn_calling=fn_calling)
    attempt = work(script, scaffold, fn_calling=fn_calling)
    assert attempt.reason is reason
    assert attempt.recorder.usage.calls == calls


def test_malformed_answers_take_steps(work: Work) -> None:
    attempt = work(play(replace(Answer("no call"))), "r2egym", max_steps=2, max_steps_absolute=4)
    assert attempt.reason is StopReason.ABSOLUTE_STEPS
    assert attempt.recorder.usage.calls == 4
