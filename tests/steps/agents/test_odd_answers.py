"""Answers that are not one whole call: each scaffold does with them what its own project does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swe_argo.steps.agents.tools.toolsets import TOOLSETS
from swe_argo.steps.contracts.trajectory import StopReason
from tests.model_server import Answer, Call, play
from tests.steps.agents.test_loop import FINISH, FORMATS, SHELL, Work, bash, finish, said, work

__all__ = ["work"]


def touch(name: str, scaffold: str, **more: str) -> Call:
    return Call("execute_bash", {SHELL[scaffold]: f"touch {name}", **more})


def block(name: str, scaffold: str, **more: str) -> str:
    values = {SHELL[scaffold]: f"touch {name}", **more}
    inner = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in values.items())
    return f"<function=execute_bash>\n{inner}</function>"


def made(work: Work) -> set[str]:
    return {path.name for path in work.box.testbed.iterdir()} & {"one", "two", "three"}


def wrong_turns(done: Any) -> int:
    return sum("malformed" in (turn.extra or {}) for turn in done.journal.turns)


@pytest.mark.parametrize(
    ("scaffold", "files", "malformed"),
    [("r2egym", {"one"}, 0), ("openhands", {"one", "two", "three"}, 0), ("sweagent", set(), 1)],
)
def test_parallel_calls_are_made_as_the_project_makes_them(
    work: Work, scaffold: str, files: set[str], malformed: int
) -> None:
    """R2E-Gym makes the first, OpenHands all, SWE-agent none and asks again."""
    three = Answer("", calls=tuple(touch(name, scaffold) for name in ("one", "two", "three")))
    done = work(said(three, three, three, bash("true", scaffold), finish(scaffold)), scaffold, max_malformed=4)
    assert done.reason is StopReason.FINISHED
    assert made(work) == files
    assert wrong_turns(done) == 3 * malformed
    answered = [message["tool_call_id"] for message in done.messages if message["role"] == "tool"]
    assert answered == [one["id"] for message in done.messages for one in message.get("tool_calls") or []]
    assert len(answered) == (1 if scaffold == "r2egym" else 3) * 3 + 1 + (scaffold == "sweagent")
    told = [result for result in done.observed if result.extra]
    assert len(told) == {"r2egym": 3, "openhands": 9, "sweagent": 1}[scaffold] + 2, "SWE-agent submits twice"


def test_the_steps_of_openhands_are_its_calls(work: Work) -> None:
    three = Answer("", calls=tuple(touch(name, "openhands") for name in ("one", "two", "three")))
    done = work(said(three, three, three, finish("openhands")), "openhands", max_steps=6)
    assert done.reason is StopReason.ABSOLUTE_STEPS
    assert done.journal.usage.calls == 2


def test_what_openhands_calls_behind_its_finish_is_not_made(work: Work) -> None:
    both = Answer("", calls=(touch("one", "openhands"), Call("finish", {"message": "."}), touch("two", "openhands")))
    done = work(said(both), "openhands")
    assert done.reason is StopReason.FINISHED
    assert made(work) == {"one"}
    [turn] = [turn for turn in done.journal.turns if turn.tool_calls]
    assert len(turn.tool_calls or []) == 3
    assert turn.observation is not None
    assert len(turn.observation.results) == 2


@FORMATS
@pytest.mark.parametrize(("scaffold", "files"), [("r2egym", {"one"}), ("openhands", {"one"}), ("sweagent", set())])
def test_an_argument_that_a_tool_does_not_know(work: Work, scaffold: str, files: set[str], fn_calling: bool) -> None:
    """OpenHands and R2E-Gym go on without it, SWE-agent asks again."""
    odd = Answer("", calls=(touch("one", scaffold, shell="zsh", security_risk="LOW"),))
    written = Answer(block("one", scaffold, shell="zsh", security_risk="LOW"))
    script = said(odd if fn_calling else written, finish(scaffold), fn_calling=fn_calling)
    done = work(script, scaffold, fn_calling=fn_calling)
    assert done.reason is StopReason.FINISHED
    assert made(work) == files
    assert wrong_turns(done) == (not files)


@pytest.mark.parametrize("rest", ["\nOBSERVATION:\nit is there\n", "\n{two}", "\nOBSERVATION:\nfine\n{finish}"])
@pytest.mark.parametrize("scaffold", TOOLSETS)
def test_in_text_the_first_block_is_made_and_what_follows_is_not(work: Work, scaffold: str, rest: str) -> None:
    first = "I make one.\n" + block("one", scaffold)
    behind = rest.format(two=block("two", scaffold), finish=f"<function={FINISH[scaffold]}>\n</function>")
    script = said(Answer(first + behind), Answer(first + behind), finish(scaffold), fn_calling=False)
    done = work(script, scaffold, fn_calling=False)
    assert done.reason is StopReason.FINISHED
    assert made(work) == {"one"}
    assert done.journal.usage.calls == 3 + (scaffold == "sweagent")
    assert wrong_turns(done) == 0
    kept = first + behind if scaffold == "sweagent" else first
    assert done.messages[2]["content"] == kept


def test_openhands_ends_answers_in_text_at_the_end_of_a_call(work: Work) -> None:
    """``</function`` is sent as a stop word, so its endpoint never brings the end of a block."""
    begun = block("one", "openhands").removesuffix("</function>")
    done = work(said(Answer(begun), finish("openhands"), fn_calling=False), "openhands", fn_calling=False)
    assert done.reason is StopReason.FINISHED
    assert made(work) == {"one"}
    assert [seen.body.get("stop") for seen in done.server.calls] == [["</function"]] * 2
    assert done.messages[2]["content"] == begun + "</function>"
    for other, fn_calling in (("openhands", True), ("r2egym", False), ("sweagent", False)):
        script = said(finish(other), fn_calling=fn_calling)
        assert "stop" not in work(script, other, fn_calling=fn_calling).server.calls[0].body


@FORMATS
@pytest.mark.parametrize(
    ("scaffold", "reason", "calls"),
    [
        ("r2egym", StopReason.FINISHED, 7),
        ("openhands", StopReason.FINISHED, 7),
        ("sweagent", StopReason.MALFORMED, 3),
    ],
)
def test_malformed_answers_end_a_unit_only_in_swe_agent(
    work: Work, scaffold: str, reason: StopReason, calls: int, fn_calling: bool
) -> None:
    """It asks three times for one step; the others go on to their last step."""
    odd = [
        Answer("I think I am done."),
        Answer("", calls=(Call("rm_rf", {}),)) if fn_calling else Answer("<function=rm_rf></function>"),
        Answer("", calls=(Call("execute_bash", "[1]"),)) if fn_calling else Answer("<function=execute_bash>"),
    ]
    script = said(*odd, *odd, finish(scaffold), fn_calling=fn_calling)
    done = work(script, scaffold, fn_calling=fn_calling)
    assert done.reason is reason
    assert done.journal.usage.calls == calls


def test_malformed_answers_take_steps(work: Work) -> None:
    done = work(play(replace(Answer("no call"))), "r2egym", max_steps=2, max_steps_absolute=4)
    assert done.reason is StopReason.ABSOLUTE_STEPS
    assert done.journal.usage.calls == 4
