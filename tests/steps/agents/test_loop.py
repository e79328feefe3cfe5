from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents import loop, templates
from swe_argo.steps.agents.opening import SCAFFOLDS
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.trajectory import Result, StopReason, Trajectory
from swe_argo.steps.errors import ConfigError, InfraError
from tests.model_server import Answer, Call, Fault, ModelServer, Script, call, function_text, play
from tests.model_server.answers import (
    CONTEXT_OPENAI,
    EMPTY,
    FILTERED,
    NO_QUOTA,
    REFUSAL,
    SERVER_ERROR,
    error,
)
from tests.steps.agents.machine import Box
from tests.steps.agents.tasks import agrees, in_turn, instance, open_task

INSTANCE = instance(problem_statement="a should be 3")
FORMATS = pytest.mark.parametrize("fn_calling", [True, False], ids=["functions", "text"])
SHELL = {"r2egym": "cmd", "openhands": "command", "sweagent": "command"}
EDITOR = {"r2egym": "file_editor", "openhands": "str_replace_editor", "sweagent": "str_replace_editor"}
FINISH = {"r2egym": "finish", "openhands": "finish", "sweagent": "submit"}


@dataclass(frozen=True)
class ToolAction:
    """A call of a tool in both formats."""

    name: str
    arguments: dict[str, str]

    def answer(self, fn_calling: bool) -> Answer:
        return call(self.name, **self.arguments) if fn_calling else function_text(self.name, "Now.", **self.arguments)


def bash(command: str, scaffold: str = "r2egym") -> ToolAction:
    return ToolAction("execute_bash", {SHELL[scaffold]: command})


def finish(scaffold: str = "r2egym") -> ToolAction:
    return ToolAction(FINISH[scaffold], {})


@dataclass
class LoopResult:
    """A finished attempt."""

    reason: StopReason | None
    recorder: Recorder
    server: ModelServer
    error: Exception | None

    @property
    def observed(self) -> list[Result]:
        return [result for turn in self.recorder.turns if turn.observation for result in turn.observation.results]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of the last request."""
        messages: list[dict[str, Any]] = self.server.calls[-1].body["messages"]
        return messages


class Work:
    """Lets a scaffold work in a box, with a scripted model."""

    def __init__(self, box: Box, file: Path) -> None:
        self.box, self.file = box, file

    def __call__(
        self, script: Script, name: str = "r2egym", *, wrong: tuple[type[Exception], ...] = (), **options: Any
    ) -> LoopResult:
        options = {"timeout_s": 60, "command_timeout_s": 20, "about": INSTANCE, **options}
        instruction = templates.template_source(AgentSpec(name=name))
        with open_task(script, self.box.sandbox, name, instruction=instruction, file=self.file, **options) as (
            task,
            server,
        ):
            reason, error = None, None
            try:
                reason = loop.act(task)
            except wrong as caught:
                error = caught
            agrees(task, server, all_recorded=False)
        written = Trajectory.from_bytes(self.file.read_bytes())
        assert (written.steps, written.extra.usage) == (task.recorder.turns, task.recorder.usage)
        return LoopResult(reason, task.recorder, server, error)


@pytest.fixture
def work(box: Box, tmp_path: Path) -> Work:
    return Work(box, tmp_path / "try" / "trajectory.json")


def script_for(*does: ToolAction | Answer | Fault, fn_calling: bool = True) -> Script:
    return play(*(action.answer(fn_calling) if isinstance(action, ToolAction) else action for action in does))


@FORMATS
@pytest.mark.parametrize("name", SCAFFOLDS)
def test_scaffolds_edit_in_both_formats(work: Work, name: str, fn_calling: bool) -> None:
    editor = EDITOR[name]
    script = script_for(
        bash("cat a.py; exit 3", name),
        ToolAction(editor, {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 2", "new_str": "a = 3"}),
        finish(name),
        fn_calling=fn_calling,
    )
    attempt = work(script, name, fn_calling=fn_calling)
    assert attempt.reason is StopReason.FINISHED
    assert (work.box.testbed / "a.py").read_text() == "a = 3\n"
    turns = attempt.recorder.turns
    again = ["agent"] * (name == "sweagent")  # it submits twice
    assert [turn.source for turn in turns] == ["system", "user", "agent", "agent", "agent", *again]
    assert "a should be 3" in turns[1].message
    assert [turn.tool_calls[0].function_name for turn in turns if turn.tool_calls] == [
        "bash" if again else "execute_bash",
        editor,
        *[FINISH[name]] * (1 + len(again)),
    ]
    first = attempt.observed[0]
    assert first.extra is not None
    assert first.extra.exit_code == 3
    assert "a = 2" in (first.content or "")
    assert all(turn.metrics and turn.metrics.prompt_tokens for turn in turns[2:])
    body = attempt.server.calls[-1].body
    assert ("tools" in body) is fn_calling
    assert [message["role"] for message in attempt.messages[:3]] == ["system", "user", "assistant"]
    assert attempt.messages[3]["role"] == ("tool" if fn_calling else "user")
    assert attempt.recorder.agent.tool_definitions
    assert ("<function=" in attempt.messages[0]["content"]) is not fn_calling


def test_model_message_is_sent_unchanged(work: Work) -> None:
    first = Answer("  thinking aloud \n", calls=(Call("execute_bash", '{"cmd":   "true"}', id="call_7"),))
    attempt = work(script_for(first, finish()))
    message = attempt.messages[2]
    assert message["content"] == "  thinking aloud \n"
    assert message["tool_calls"][0]["id"] == "call_7"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"cmd":   "true"}'
    assert attempt.messages[3]["tool_call_id"] == "call_7"
    assert attempt.messages[3]["content"] == attempt.observed[0].content


TOUCH = bash("touch done-it")


@pytest.mark.parametrize(
    ("script", "agent", "reason"),
    [
        (script_for(TOUCH), {"max_steps": 1, "max_steps_absolute": 3}, StopReason.ABSOLUTE_STEPS),
        (script_for(replace(TOUCH.answer(True), usage=False)), {"max_token_limit": 600}, StopReason.CONTEXT_LIMIT),
        (script_for(TOUCH, bash("sleep 60")), {"timeout_s": 3.0}, StopReason.TIMEOUT),
        (script_for(TOUCH, Answer("late", delay_s=60)), {"timeout_s": 3.0}, StopReason.TIMEOUT),
        (script_for(TOUCH, CONTEXT_OPENAI), {}, StopReason.CONTEXT_OVERFLOW),
        (script_for(TOUCH, REFUSAL), {}, StopReason.REFUSAL),
        (script_for(TOUCH, FILTERED), {}, StopReason.CONTENT_FILTER),
        (script_for(TOUCH, Answer("no call")), {"max_malformed": 3}, StopReason.MALFORMED),
        (script_for(TOUCH, EMPTY), {"max_malformed": 3}, StopReason.EMPTY_ANSWER),
        (script_for(TOUCH, bash("sleep 1.2")), {"commands_timeout_s": 1.0}, StopReason.TIMEOUT),
    ],
)
def test_limits_keep_reason_and_changes(work: Work, script: Script, agent: dict[str, Any], reason: StopReason) -> None:
    attempt = work(script, **agent)
    if "timeout_s" in agent and not (work.box.testbed / "done-it").exists():  # a busy machine may need longer
        attempt = work(script, **{**agent, "timeout_s": 50.0})
    assert attempt.reason is reason
    assert (work.box.testbed / "done-it").exists()


@FORMATS
def test_openhands_drops_older_half(work: Work, fn_calling: bool) -> None:
    does = [bash(f"echo turn-{number}; touch done-{number}", "openhands") for number in range(4)]
    further = [item.answer(fn_calling) for item in (bash("true", "openhands"), finish("openhands"))]
    script = in_turn(*(item.answer(fn_calling) for item in does), CONTEXT_OPENAI, *further)
    attempt = work(script, "openhands", fn_calling=fn_calling)
    assert attempt.reason is StopReason.FINISHED
    words = json.dumps(attempt.messages)
    assert ["turn-0" in words, "turn-1" in words, "turn-2" in words, "turn-3" in words] == [False, False, True, True]
    answer = "tool" if fn_calling else "user"
    roles = [message["role"] for message in attempt.messages]
    assert roles == ["system", "user", *["assistant", answer] * 3]
    called = [item["id"] for message in attempt.messages for item in message.get("tool_calls") or []]
    assert called == [message["tool_call_id"] for message in attempt.messages if message["role"] == "tool"]
    assert "shortened 1 times" in (attempt.recorder.trajectory(StopReason.FINISHED).notes or "")


def test_good_answer_resets_wrong_count(work: Work) -> None:
    wrong = Answer("no call")
    script = script_for(wrong, wrong, bash("true"), wrong, wrong, bash("true"), wrong, wrong, wrong, finish())
    attempt = work(script, max_malformed=3)
    assert attempt.reason is StopReason.MALFORMED
    assert attempt.recorder.usage.calls == 9


@pytest.mark.parametrize(
    ("fault", "kind", "failure_class"),
    [(SERVER_ERROR, InfraError, FailureClass.MODEL), (NO_QUOTA, ConfigError, FailureClass.MODEL_ACCESS)],
)
def test_failing_endpoint_keeps_turns(
    work: Work, fault: Fault, kind: type[Exception], failure_class: FailureClass
) -> None:
    attempt = work(script_for(TOUCH, fault), wrong=(InfraError, ConfigError), llm={"num_retries": 2})
    assert isinstance(attempt.error, kind)
    assert isinstance(attempt.error, InfraError | ConfigError)
    assert attempt.error.failure_class is failure_class
    assert [turn.source for turn in attempt.recorder.turns] == ["system", "user", "agent"]
    assert attempt.recorder.usage.calls == 1
    assert attempt.recorder.usage.requests == (4 if kind is InfraError else 2)


def test_task_temperature_is_sent(work: Work) -> None:
    assert work(script_for(finish()), temperature=0.1).server.calls[0].body["temperature"] == 0.1
    assert work(script_for(finish())).server.calls[0].body["temperature"] == 0.0


@FORMATS
def test_loop_survives_invalid_text(work: Work, fn_calling: bool) -> None:
    """Halves of surrogate pairs and NUL: from the model, from a file, and back to the model."""
    odd = Answer("half \ud83d of a pair \0")
    cat = bash("printf '\\377\\355\\240\\275 \\0 odd'; printf 'a = \\377' > a.py")
    edit = ToolAction("file_editor", {"command": "create", "path": "/testbed/x.txt", "file_text": "a\ud83db"})
    attempt = work(
        script_for(odd, cat, edit, bash("echo '\ud83d'"), finish(), fn_calling=fn_calling), fn_calling=fn_calling
    )
    assert attempt.reason is StopReason.FINISHED
    assert any("odd" in (result.content or "") for result in attempt.observed)


def test_unoffered_call_is_corrected(work: Work) -> None:
    attempt = work(script_for(call("execute_bash", cmd="touch one"), finish(), fn_calling=False), fn_calling=False)
    assert attempt.reason is StopReason.FINISHED
    assert not (work.box.testbed / "one").exists()
    assert [message["role"] for message in attempt.messages] == ["system", "user", "assistant", "user"]
    assert "tool_calls" not in attempt.messages[2]
    turn = attempt.recorder.turns[2]
    assert turn.extra is not None
    assert turn.extra["function_calls"] == [{"name": "execute_bash", "arguments": '{"cmd": "touch one"}'}]


LATE = error(400, "Invalid 'messages[4].content'", "invalid_value", "invalid_request_error")


def test_late_refusal_keeps_changes(work: Work) -> None:
    attempt = work(script_for(TOUCH, LATE), llm={"num_retries": 3})
    assert attempt.reason is StopReason.REQUEST_REFUSED
    assert (work.box.testbed / "done-it").exists()
    assert attempt.server.counts.requests == 4, "the same once more, after plan's small request"
    assert attempt.recorder.note == "Invalid 'messages[4].content'"


def touch(name: str, scaffold: str, **more: str) -> Call:
    return Call("execute_bash", {SHELL[scaffold]: f"touch {name}", **more})


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


def test_openhands_stops_at_call_end(work: Work) -> None:
    """``</function`` is sent as a stop word, so its endpoint never brings the end of a block."""
    open_block = "<function=execute_bash>\n<parameter=command>touch one</parameter>\n"
    attempt = work(script_for(Answer(open_block), finish("openhands"), fn_calling=False), "openhands", fn_calling=False)
    assert attempt.reason is StopReason.FINISHED
    assert created_files(work) == {"one"}
    assert [request.body.get("stop") for request in attempt.server.calls] == [["</function"]] * 2
    assert attempt.messages[2]["content"] == open_block + "</function>"
    for scaffold, fn_calling in (("openhands", True), ("r2egym", False), ("sweagent", False)):
        script = script_for(finish(scaffold), fn_calling=fn_calling)
        assert "stop" not in work(script, scaffold, fn_calling=fn_calling).server.calls[0].body


@pytest.mark.parametrize("scaffold", SCAFFOLDS)
def test_malformed_answers_end_only_swe_agent(work: Work, scaffold: str) -> None:
    """SWE-agent ends after three malformed answers in one step; the other scaffolds continue to their last step."""
    odd = [Answer("I think I am done."), call("rm_rf"), Answer("", calls=(Call("execute_bash", "[1]"),))]
    attempt = work(script_for(*odd, *odd, finish(scaffold)), scaffold)
    ends = scaffold == "sweagent"
    assert attempt.reason is (StopReason.MALFORMED if ends else StopReason.FINISHED)
    assert attempt.recorder.usage.calls == (3 if ends else 7)


def test_malformed_answers_take_steps(work: Work) -> None:
    attempt = work(play(Answer("no call")), max_steps=2, max_steps_absolute=4)
    assert attempt.reason is StopReason.ABSOLUTE_STEPS
    assert attempt.recorder.usage.calls == 4


def test_issue_images_follow_instruction(work: Work) -> None:
    images = ["https://example.org/a.png", "data:image/png;base64," + "A" * 1000]
    about = INSTANCE.model_copy(update={"images": images})
    attempt = work(script_for(finish()), about=about, issue_images=True)
    text, *parts = attempt.messages[1]["content"]
    assert "a should be 3" in text["text"]
    assert [(part["type"], part["image_url"]["url"]) for part in parts] == [("image_url", url) for url in images]
    message = str(attempt.recorder.turns[1].message)
    assert "[image: https://example.org/a.png]" in message
    assert len(message) < len(text["text"]) + 500
    for plain, is_enabled in ((about, False), (INSTANCE, True)):
        attempt = work(script_for(finish()), about=plain, issue_images=is_enabled)
        assert isinstance(attempt.messages[1]["content"], str)


def test_prompt_only_grows(work: Work) -> None:
    """Each request begins with the one before, byte for byte: caches hold, and token ids line up."""
    attempt = work(script_for(bash("true"), EMPTY, bash("echo x"), finish()), max_steps=5)
    bodies = [request.body["messages"] for request in attempt.server.calls]
    for before, after in itertools.pairwise(bodies):
        assert after[: len(before)] == before
    assert attempt.messages[1]["content"].endswith("Steps Remaining: 5")
    assert attempt.messages[3]["content"].endswith("Steps Remaining: 4")


@pytest.mark.parametrize("name", SCAFFOLDS)
def test_used_up_steps_are_announced(work: Work, name: str) -> None:
    script = script_for(bash("true", name), bash("true", name), finish(name))
    attempt = work(script, name, max_steps=2, max_steps_absolute=4)
    assert attempt.reason is StopReason.MAX_STEPS
    assert f"All of your 2 steps are used up. Call {FINISH[name]} now." in attempt.messages[-1]["content"]
    assert "used up" not in attempt.messages[3]["content"]
    assert ("Steps Remaining" in json.dumps(attempt.messages)) is (name == "r2egym")


def test_unshortenable_conversation_ends(work: Work) -> None:
    does = [bash(f"touch done-{number}", "openhands") for number in range(5)]
    script = in_turn(*(action.answer(True) for action in does), CONTEXT_OPENAI)
    attempt = work(script, "openhands")
    assert attempt.reason is StopReason.CONTEXT_OVERFLOW
    assert "maximum context length" in (attempt.recorder.trajectory(StopReason.CONTEXT_OVERFLOW).notes or "")
    assert work(script_for(bash("true"), bash("true"), CONTEXT_OPENAI, finish())).reason is StopReason.CONTEXT_OVERFLOW


@FORMATS
def test_wrong_answers_are_corrected(work: Work, fn_calling: bool) -> None:
    wrong = [
        (Answer("I think it is done."), Answer("I think it is done.")),
        (EMPTY, EMPTY),
        (call("rm_rf", path="/"), function_text("rm_rf", path="/")),
        (call("execute_bash"), function_text("execute_bash")),
        (Answer(calls=(Call("execute_bash", '{"cmd": "ls'),)), Answer("<function=execute_bash>\n<parameter=cmd>ls")),
        (Answer(calls=(Call("execute_bash", "[1]"),)), Answer("<function=execute_bash>\n<parameter=cmd>ls</function>")),
    ]
    answers = [pair[not fn_calling] for pair in wrong]
    does: list[ToolAction | Answer] = [bash("true"), *answers, bash("echo 'a = 3' > a.py"), answers[0], finish()]
    attempt = work(script_for(*does, fn_calling=fn_calling), fn_calling=fn_calling)
    assert attempt.reason is StopReason.FINISHED
    assert (work.box.testbed / "a.py").read_text() == "a = 3\n"
    assert wrong_turns(attempt) == len(wrong) + 1
    for before, after in itertools.pairwise(attempt.messages):
        # what the protocol asks for: every call is answered, and nobody speaks twice
        assert before["role"] != after["role"] or before["role"] == "tool"
    called = {tool_call["id"] for message in attempt.messages for tool_call in message.get("tool_calls") or []}
    assert called == {message["tool_call_id"] for message in attempt.messages if message["role"] == "tool"}
    for turn in attempt.recorder.turns:
        call_ids = {tool_call.tool_call_id for tool_call in turn.tool_calls or []}
        assert turn.observation is None or {r.source_call_id for r in turn.observation.results} <= call_ids
