from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents import loop
from swe_argo.steps.agents.prompts import templates
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.scaffolds import SCAFFOLDS
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import AgentInfo, Result, StopReason, Trajectory
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.models.client import open_model
from tests.model_server import Answer, Call, Fault, ModelServer, Script, call, function_text, model_server, play
from tests.model_server.answers import (
    CONTEXT_OPENAI,
    CONTEXT_VLLM,
    EMPTY,
    FILTERED,
    NO_QUOTA,
    REFUSAL,
    SERVER_ERROR,
    rate_limited,
)
from tests.steps.agents.machine import Box
from tests.steps.agents.mini_answers import in_turn

INSTANCE = Instance(
    instance_id="o__r-1", repo="o/r", version="1", base_commit="c", image="i", problem_statement="a should be 3"
)
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
    """An attempt that is over, with all that is known of it."""

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
        self,
        script: Script,
        name: str = "r2egym",
        *,
        fn_calling: bool = True,
        llm: dict[str, Any] | None = None,
        temperature: float | None = None,
        wrong: tuple[type[Exception], ...] = (),
        about: Instance = INSTANCE,
        **agent: Any,
    ) -> LoopResult:
        with model_server(script) as server:
            chosen_spec = RunSpec.model_validate(
                {
                    "agent": {"name": name, "model": "openai/m", "timeout_s": 60, "command_timeout_s": 20, **agent},
                    "llm": {"base_url": server.url, "num_retries": 0, **(llm or {})},
                }
            )
            recorder = Recorder(AgentInfo(name=name, version="1", model_name="m"), "run", "o__r-1", 1, self.file)
            with open_model(chosen_spec, first_wait_s=0.01) as model:
                task = Task(
                    instance=about,
                    spec=chosen_spec.agent,
                    box=self.box.sandbox,
                    recorder=recorder,
                    model=model,
                    instruction=templates.template_source(chosen_spec.agent),
                    fn_calling=fn_calling,
                    temperature=temperature,
                )
                reason, error = None, None
                try:
                    reason = loop.act(task)
                except wrong as caught:
                    error = caught
                assert recorder.usage == model.usage
            assert not server.errors
            counts = server.counts
            usage = recorder.usage
            assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
            assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
            written = Trajectory.from_bytes(self.file.read_bytes())
            assert written.steps == recorder.turns
            assert written.extra.usage == usage
            return LoopResult(reason, recorder, server, error)


@pytest.fixture
def work(box: Box, tmp_path: Path) -> Work:
    return Work(box, tmp_path / "try" / "trajectory.json")


def script_for(*does: ToolAction | Answer | Fault, fn_calling: bool = True) -> Script:
    return play(*(action.answer(fn_calling) if isinstance(action, ToolAction) else action for action in does))


IMAGES = ["https://example.org/a.png", "data:image/png;base64," + "A" * 1000]


@pytest.mark.parametrize("name", SCAFFOLDS)
def test_issue_images_follow_instruction(work: Work, name: str) -> None:
    instance = INSTANCE.model_copy(update={"images": IMAGES})
    worked = work(script_for(finish(name)), name, about=instance, issue_images=True)
    content = worked.messages[1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    assert "a should be 3" in content[0]["text"]
    assert [part["image_url"]["url"] for part in content[1:]] == IMAGES
    message = str(worked.recorder.turns[1].message)
    assert "[image: https://example.org/a.png]" in message
    assert len(message) < len(content[0]["text"]) + 500
    for about, is_enabled in ((instance, False), (INSTANCE, True)):
        assert isinstance(
            work(script_for(finish(name)), name, about=about, issue_images=is_enabled).messages[1]["content"], str
        )


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


def test_prompt_only_grows(work: Work) -> None:
    """Each request begins with the one before, byte for byte: caches hold, and token ids line up."""
    attempt = work(script_for(bash("true"), EMPTY, bash("echo x"), finish()))
    bodies = [request.body["messages"] for request in attempt.server.calls]
    for before, after in itertools.pairwise(bodies):
        assert after[: len(before)] == before


def test_r2egym_shows_remaining_steps(work: Work) -> None:
    attempt = work(script_for(bash("true"), finish()), max_steps=5)
    assert attempt.messages[1]["content"].endswith("Steps Remaining: 5")
    assert attempt.messages[3]["content"].endswith("Steps Remaining: 4")
    openhands = work(script_for(bash("true", "openhands"), finish("openhands")), "openhands", max_steps=5)
    assert "Remaining" not in json.dumps(openhands.messages)


@FORMATS
@pytest.mark.parametrize("name", SCAFFOLDS)
def test_used_up_steps_are_announced(work: Work, name: str, fn_calling: bool) -> None:
    script = script_for(bash("true", name), bash("true", name), finish(name), fn_calling=fn_calling)
    attempt = work(script, name, fn_calling=fn_calling, max_steps=2, max_steps_absolute=4)
    assert attempt.reason is StopReason.MAX_STEPS
    assert f"All of your 2 steps are used up. Call {FINISH[name]} now." in attempt.messages[-1]["content"]
    assert "used up" not in attempt.messages[3]["content"]


TOUCH = bash("touch done-it")


@pytest.mark.parametrize(
    ("script", "agent", "reason"),
    [
        (script_for(TOUCH), {"max_steps": 1, "max_steps_absolute": 3}, StopReason.ABSOLUTE_STEPS),
        (script_for(TOUCH), {"max_steps": 2}, StopReason.ABSOLUTE_STEPS),
        (
            script_for(replace(TOUCH.answer(True), prompt_tokens=900)),
            {"max_token_limit": 901},
            StopReason.CONTEXT_LIMIT,
        ),
        (script_for(replace(TOUCH.answer(True), usage=False)), {"max_token_limit": 600}, StopReason.CONTEXT_LIMIT),
        (
            script_for(replace(TOUCH.answer(True), prompt_tokens=400)),
            {"max_total_tokens": 1300},
            StopReason.TOKEN_LIMIT,
        ),
        (script_for(replace(TOUCH.answer(True), cost_usd=0.2)), {"max_cost_usd": 0.5}, StopReason.COST_LIMIT),
        (script_for(TOUCH, bash("sleep 60")), {"timeout_s": 5.0}, StopReason.TIMEOUT),
        (script_for(TOUCH, Answer("late", delay_s=60)), {"timeout_s": 5.0}, StopReason.TIMEOUT),
        (script_for(TOUCH, CONTEXT_OPENAI), {}, StopReason.CONTEXT_OVERFLOW),
        (script_for(TOUCH, CONTEXT_VLLM), {}, StopReason.CONTEXT_OVERFLOW),
        (script_for(TOUCH, REFUSAL), {}, StopReason.REFUSAL),
        (script_for(TOUCH, FILTERED), {}, StopReason.CONTENT_FILTER),
        (script_for(TOUCH, Answer("no call")), {"max_malformed": 3}, StopReason.MALFORMED),
        (script_for(TOUCH, EMPTY), {"max_malformed": 3}, StopReason.EMPTY_ANSWER),
        (script_for(TOUCH, EMPTY, Answer("no call"), EMPTY), {"max_malformed": 3}, StopReason.MALFORMED),
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


def test_unshortenable_conversation_ends(work: Work) -> None:
    does = [bash(f"touch done-{number}", "openhands") for number in range(5)]
    script = in_turn(*(action.answer(True) for action in does), CONTEXT_OPENAI)
    assert work(script, "openhands").reason is StopReason.CONTEXT_OVERFLOW
    assert work(script_for(bash("true"), bash("true"), CONTEXT_OPENAI, finish())).reason is StopReason.CONTEXT_OVERFLOW


def test_endpoint_message_is_noted(work: Work) -> None:
    attempt = work(script_for(TOUCH, CONTEXT_OPENAI))
    assert "maximum context length" in (attempt.recorder.trajectory(StopReason.CONTEXT_OVERFLOW).notes or "")


def test_slow_command_is_an_observation(work: Work) -> None:
    attempt = work(script_for(bash("echo begun; sleep 30"), finish()), command_timeout_s=3)
    assert attempt.reason is StopReason.FINISHED
    result = attempt.observed[0]
    assert result.extra is not None
    assert result.extra.timed_out
    assert "took too long" in (result.content or "")


WRONG: dict[str, tuple[Answer, Answer]] = {
    "no call": (Answer("I think it is done."), Answer("I think it is done.")),
    "empty": (EMPTY, EMPTY),
    "unknown tool": (call("rm_rf", path="/"), function_text("rm_rf", path="/")),
    "missing argument": (call("execute_bash"), function_text("execute_bash")),
    "unknown argument": (call("execute_bash", shell="zsh"), function_text("execute_bash", shell="zsh")),
    "no JSON": (
        Answer(calls=(Call("execute_bash", '{"cmd": "ls'),)),
        Answer("<function=execute_bash>\n<parameter=cmd>ls</parameter>"),
    ),
    "JSON, but no object": (
        Answer(calls=(Call("execute_bash", "[1]"),)),
        Answer("<function=execute_bash>\n<parameter=cmd>ls</function>"),
    ),
}


@FORMATS
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_answer_is_corrected(work: Work, wrong: str, fn_calling: bool) -> None:
    answer = WRONG[wrong][not fn_calling]
    script = script_for(
        bash("true"), answer, bash("echo 'a = 3' > a.py"), answer, answer, finish(), fn_calling=fn_calling
    )
    attempt = work(script, fn_calling=fn_calling)
    assert attempt.reason is StopReason.FINISHED
    assert (work.box.testbed / "a.py").read_text() == "a = 3\n"
    marked = [turn for turn in attempt.recorder.turns if turn.extra and "malformed" in turn.extra]
    assert len(marked) == 3
    for before, after in itertools.pairwise(attempt.messages):
        # what the protocol asks for: every call is answered, and nobody speaks twice
        assert before["role"] != after["role"] or before["role"] == "tool"
    called = {tool_call["id"] for message in attempt.messages for tool_call in message.get("tool_calls") or []}
    assert called == {message["tool_call_id"] for message in attempt.messages if message["role"] == "tool"}
    for turn in attempt.recorder.turns:
        call_ids = {tool_call.tool_call_id for tool_call in turn.tool_calls or []}
        assert turn.observation is None or {r.source_call_id for r in turn.observation.results} <= call_ids


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


def test_retries_are_counted(work: Work) -> None:
    turn = bash("true").answer(True)
    attempt = work(play([rate_limited(), SERVER_ERROR, turn], finish().answer(True)), llm={"num_retries": 5})
    assert attempt.reason is StopReason.FINISHED
    assert (attempt.recorder.usage.calls, attempt.recorder.usage.requests) == (2, 4)
    metrics = attempt.recorder.turns[2].metrics
    assert metrics is not None
    assert metrics.extra is not None
    assert metrics.extra.requests == 3


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
