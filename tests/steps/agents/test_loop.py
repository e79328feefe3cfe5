from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents import loop
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.prompts import templates
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
class Does:
    """A call of a tool in both formats."""

    name: str
    arguments: dict[str, str]

    def said(self, fn_calling: bool) -> Answer:
        return call(self.name, **self.arguments) if fn_calling else function_text(self.name, "Now.", **self.arguments)


def bash(command: str, scaffold: str = "r2egym") -> Does:
    return Does("execute_bash", {SHELL[scaffold]: command})


def finish(scaffold: str = "r2egym") -> Does:
    return Does(FINISH[scaffold], {})


@dataclass
class Worked:
    """An attempt that is over, with all that is known of it."""

    reason: StopReason | None
    journal: Journal
    server: ModelServer
    error: Exception | None

    @property
    def observed(self) -> list[Result]:
        return [result for turn in self.journal.turns if turn.observation for result in turn.observation.results]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of the last request."""
        found: list[dict[str, Any]] = self.server.calls[-1].body["messages"]
        return found


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
    ) -> Worked:
        with model_server(script) as server:
            chosen_spec = RunSpec.model_validate(
                {
                    "agent": {"name": name, "model": "openai/m", "timeout_s": 60, "command_timeout_s": 20, **agent},
                    "llm": {"base_url": server.url, "num_retries": 0, **(llm or {})},
                }
            )
            journal = Journal(AgentInfo(name=name, version="1", model_name="m"), "run", "o__r-1", 1, self.file)
            with open_model(chosen_spec, first_wait_s=0.01) as model:
                task = Task(
                    instance=about,
                    spec=chosen_spec.agent,
                    box=self.box.sandbox,
                    journal=journal,
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
                assert journal.usage == model.usage
            assert not server.errors
            counts = server.counts
            usage = journal.usage
            assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
            assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
            written = Trajectory.from_bytes(self.file.read_bytes())
            assert written.steps == journal.turns
            assert written.extra.usage == usage
            return Worked(reason, journal, server, error)


@pytest.fixture
def work(box: Box, tmp_path: Path) -> Work:
    return Work(box, tmp_path / "try" / "trajectory.json")


def said(*does: Does | Answer | Fault, fn_calling: bool = True) -> Script:
    return play(*(one.said(fn_calling) if isinstance(one, Does) else one for one in does))


IMAGES = ["https://example.org/a.png", "data:image/png;base64," + "A" * 1000]


@pytest.mark.parametrize("name", SCAFFOLDS)
def test_an_issues_images_stand_behind_the_first_instruction_where_that_is_wished(work: Work, name: str) -> None:
    seen = INSTANCE.model_copy(update={"images": IMAGES})
    worked = work(said(finish(name)), name, about=seen, issue_images=True)
    content = worked.messages[1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    assert "a should be 3" in content[0]["text"]
    assert [part["image_url"]["url"] for part in content[1:]] == IMAGES
    told = str(worked.journal.turns[1].message)
    assert "[image: https://example.org/a.png]" in told
    assert len(told) < len(content[0]["text"]) + 500
    for about, wished in ((seen, False), (INSTANCE, True)):
        assert isinstance(work(said(finish(name)), name, about=about, issue_images=wished).messages[1]["content"], str)


@FORMATS
@pytest.mark.parametrize("name", SCAFFOLDS)
def test_every_scaffold_edits_a_repository_in_both_formats(work: Work, name: str, fn_calling: bool) -> None:
    editor = EDITOR[name]
    script = said(
        bash("cat a.py; exit 3", name),
        Does(editor, {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 2", "new_str": "a = 3"}),
        finish(name),
        fn_calling=fn_calling,
    )
    done = work(script, name, fn_calling=fn_calling)
    assert done.reason is StopReason.FINISHED
    assert (work.box.testbed / "a.py").read_text() == "a = 3\n"
    turns = done.journal.turns
    again = ["agent"] * (name == "sweagent")  # it submits twice
    assert [turn.source for turn in turns] == ["system", "user", "agent", "agent", "agent", *again]
    assert "a should be 3" in turns[1].message
    assert [turn.tool_calls[0].function_name for turn in turns if turn.tool_calls] == [
        "bash" if again else "execute_bash",
        editor,
        *[FINISH[name]] * (1 + len(again)),
    ]
    first = done.observed[0]
    assert first.extra is not None
    assert first.extra.exit_code == 3
    assert "a = 2" in (first.content or "")
    assert all(turn.metrics and turn.metrics.prompt_tokens for turn in turns[2:])
    body = done.server.calls[-1].body
    assert ("tools" in body) is fn_calling
    assert [message["role"] for message in done.messages[:3]] == ["system", "user", "assistant"]
    assert done.messages[3]["role"] == ("tool" if fn_calling else "user")
    assert done.journal.agent.tool_definitions
    assert ("<function=" in done.messages[0]["content"]) is not fn_calling


def test_what_the_model_said_is_sent_back_as_it_was(work: Work) -> None:
    first = Answer("  thinking aloud \n", calls=(Call("execute_bash", '{"cmd":   "true"}', id="call_7"),))
    done = work(said(first, finish()))
    sent = done.messages[2]
    assert sent["content"] == "  thinking aloud \n"
    assert sent["tool_calls"][0]["id"] == "call_7"
    assert sent["tool_calls"][0]["function"]["arguments"] == '{"cmd":   "true"}'
    assert done.messages[3]["tool_call_id"] == "call_7"
    assert done.messages[3]["content"] == done.observed[0].content


def test_a_prompt_only_grows(work: Work) -> None:
    """Each request begins with the one before, byte for byte: caches hold, and token ids line up."""
    done = work(said(bash("true"), EMPTY, bash("echo x"), finish()))
    bodies = [seen.body["messages"] for seen in done.server.calls]
    for before, after in itertools.pairwise(bodies):
        assert after[: len(before)] == before


def test_r2egym_is_told_how_many_steps_remain(work: Work) -> None:
    done = work(said(bash("true"), finish()), max_steps=5)
    assert done.messages[1]["content"].endswith("Steps Remaining: 5")
    assert done.messages[3]["content"].endswith("Steps Remaining: 4")
    other = work(said(bash("true", "openhands"), finish("openhands")), "openhands", max_steps=5)
    assert "Remaining" not in json.dumps(other.messages)


@FORMATS
@pytest.mark.parametrize("name", SCAFFOLDS)
def test_it_is_told_when_its_steps_are_used_up(work: Work, name: str, fn_calling: bool) -> None:
    script = said(bash("true", name), bash("true", name), finish(name), fn_calling=fn_calling)
    done = work(script, name, fn_calling=fn_calling, max_steps=2, max_steps_absolute=4)
    assert done.reason is StopReason.MAX_STEPS
    assert f"All of your 2 steps are used up. Call {FINISH[name]} now." in done.messages[-1]["content"]
    assert "used up" not in done.messages[3]["content"]


TOUCH = bash("touch done-it")


@pytest.mark.parametrize(
    ("script", "agent", "reason"),
    [
        (said(TOUCH), {"max_steps": 1, "max_steps_absolute": 3}, StopReason.ABSOLUTE_STEPS),
        (said(TOUCH), {"max_steps": 2}, StopReason.ABSOLUTE_STEPS),
        (said(replace(TOUCH.said(True), prompt_tokens=900)), {"max_token_limit": 901}, StopReason.CONTEXT_LIMIT),
        (said(replace(TOUCH.said(True), usage=False)), {"max_token_limit": 600}, StopReason.CONTEXT_LIMIT),
        (said(replace(TOUCH.said(True), prompt_tokens=400)), {"max_total_tokens": 1300}, StopReason.TOKEN_LIMIT),
        (said(replace(TOUCH.said(True), cost_usd=0.2)), {"max_cost_usd": 0.5}, StopReason.COST_LIMIT),
        (said(TOUCH, bash("sleep 60")), {"timeout_s": 5.0}, StopReason.TIMEOUT),
        (said(TOUCH, Answer("late", delay_s=60)), {"timeout_s": 5.0}, StopReason.TIMEOUT),
        (said(TOUCH, CONTEXT_OPENAI), {}, StopReason.CONTEXT_OVERFLOW),
        (said(TOUCH, CONTEXT_VLLM), {}, StopReason.CONTEXT_OVERFLOW),
        (said(TOUCH, REFUSAL), {}, StopReason.REFUSAL),
        (said(TOUCH, FILTERED), {}, StopReason.CONTENT_FILTER),
        (said(TOUCH, Answer("no call")), {"max_malformed": 3}, StopReason.MALFORMED),
        (said(TOUCH, EMPTY), {"max_malformed": 3}, StopReason.EMPTY_ANSWER),
        (said(TOUCH, EMPTY, Answer("no call"), EMPTY), {"max_malformed": 3}, StopReason.MALFORMED),
        (said(TOUCH, bash("sleep 1.2")), {"commands_timeout_s": 1.0}, StopReason.TIMEOUT),
    ],
)
def test_every_limit_has_its_reason_and_leaves_the_changes(
    work: Work, script: Script, agent: dict[str, Any], reason: StopReason
) -> None:
    done = work(script, **agent)
    if "timeout_s" in agent and not (work.box.testbed / "done-it").exists():  # a busy machine may need longer
        done = work(script, **{**agent, "timeout_s": 50.0})
    assert done.reason is reason
    assert (work.box.testbed / "done-it").exists()


@FORMATS
def test_openhands_goes_on_without_the_older_half_of_a_conversation_that_is_too_long(
    work: Work, fn_calling: bool
) -> None:
    does = [bash(f"echo turn-{number}; touch done-{number}", "openhands") for number in range(4)]
    further = [one.said(fn_calling) for one in (bash("true", "openhands"), finish("openhands"))]
    script = in_turn(*(one.said(fn_calling) for one in does), CONTEXT_OPENAI, *further)
    done = work(script, "openhands", fn_calling=fn_calling)
    assert done.reason is StopReason.FINISHED
    words = json.dumps(done.messages)
    assert ["turn-0" in words, "turn-1" in words, "turn-2" in words, "turn-3" in words] == [False, False, True, True]
    answer = "tool" if fn_calling else "user"
    roles = [message["role"] for message in done.messages]
    assert roles == ["system", "user", *["assistant", answer] * 3]
    called = [one["id"] for message in done.messages for one in message.get("tool_calls") or []]
    assert called == [message["tool_call_id"] for message in done.messages if message["role"] == "tool"]
    assert "shortened 1 times" in (done.journal.trajectory(StopReason.FINISHED).notes or "")


def test_a_conversation_that_cannot_be_shortened_further_is_over(work: Work) -> None:
    does = [bash(f"touch done-{number}", "openhands") for number in range(5)]
    script = in_turn(*(one.said(True) for one in does), CONTEXT_OPENAI)
    assert work(script, "openhands").reason is StopReason.CONTEXT_OVERFLOW
    assert work(said(bash("true"), bash("true"), CONTEXT_OPENAI, finish())).reason is StopReason.CONTEXT_OVERFLOW


def test_what_the_endpoint_said_of_the_end_is_noted(work: Work) -> None:
    done = work(said(TOUCH, CONTEXT_OPENAI))
    assert "maximum context length" in (done.journal.trajectory(StopReason.CONTEXT_OVERFLOW).notes or "")


def test_a_command_that_takes_too_long_is_an_observation(work: Work) -> None:
    done = work(said(bash("echo begun; sleep 30"), finish()), command_timeout_s=3)
    assert done.reason is StopReason.FINISHED
    seen = done.observed[0]
    assert seen.extra is not None
    assert seen.extra.timed_out
    assert "took too long" in (seen.content or "")


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
def test_a_wrong_answer_is_corrected_and_the_work_goes_on(work: Work, wrong: str, fn_calling: bool) -> None:
    answer = WRONG[wrong][not fn_calling]
    script = said(bash("true"), answer, bash("echo 'a = 3' > a.py"), answer, answer, finish(), fn_calling=fn_calling)
    done = work(script, fn_calling=fn_calling)
    assert done.reason is StopReason.FINISHED
    assert (work.box.testbed / "a.py").read_text() == "a = 3\n"
    marked = [turn for turn in done.journal.turns if turn.extra and "malformed" in turn.extra]
    assert len(marked) == 3
    for before, after in itertools.pairwise(done.messages):
        # what the protocol asks for: every call is answered, and nobody speaks twice
        assert before["role"] != after["role"] or before["role"] == "tool"
    called = {one["id"] for message in done.messages for one in message.get("tool_calls") or []}
    assert called == {message["tool_call_id"] for message in done.messages if message["role"] == "tool"}
    for turn in done.journal.turns:
        known = {one.tool_call_id for one in turn.tool_calls or []}
        assert turn.observation is None or {r.source_call_id for r in turn.observation.results} <= known


def test_a_good_answer_makes_up_for_the_wrong_ones_before(work: Work) -> None:
    wrong = Answer("no call")
    script = said(wrong, wrong, bash("true"), wrong, wrong, bash("true"), wrong, wrong, wrong, finish())
    done = work(script, max_malformed=3)
    assert done.reason is StopReason.MALFORMED
    assert done.journal.usage.calls == 9


@pytest.mark.parametrize(
    ("fault", "kind", "failure_class"),
    [(SERVER_ERROR, InfraError, FailureClass.MODEL), (NO_QUOTA, ConfigError, FailureClass.MODEL_ACCESS)],
)
def test_a_failing_endpoint_leaves_all_that_was_before(
    work: Work, fault: Fault, kind: type[Exception], failure_class: FailureClass
) -> None:
    done = work(said(TOUCH, fault), wrong=(InfraError, ConfigError), llm={"num_retries": 2})
    assert isinstance(done.error, kind)
    assert isinstance(done.error, InfraError | ConfigError)
    assert done.error.failure_class is failure_class
    assert [turn.source for turn in done.journal.turns] == ["system", "user", "agent"]
    assert done.journal.usage.calls == 1
    assert done.journal.usage.requests == (4 if kind is InfraError else 2)


def test_retries_are_counted(work: Work) -> None:
    turn = bash("true").said(True)
    done = work(play([rate_limited(), SERVER_ERROR, turn], finish().said(True)), llm={"num_retries": 5})
    assert done.reason is StopReason.FINISHED
    assert (done.journal.usage.calls, done.journal.usage.requests) == (2, 4)
    metrics = done.journal.turns[2].metrics
    assert metrics is not None
    assert metrics.extra is not None
    assert metrics.extra.requests == 3


def test_the_temperature_of_the_task_is_what_is_sent(work: Work) -> None:
    assert work(said(finish()), temperature=0.1).server.calls[0].body["temperature"] == 0.1
    assert work(said(finish())).server.calls[0].body["temperature"] == 0.0


@FORMATS
def test_text_that_is_no_text_is_survived(work: Work, fn_calling: bool) -> None:
    """Halves of surrogate pairs and NUL: from the model, from a file, and back to the model."""
    odd = Answer("half \ud83d of a pair \0")
    cat = bash("printf '\\377\\355\\240\\275 \\0 odd'; printf 'a = \\377' > a.py")
    edit = Does("file_editor", {"command": "create", "path": "/testbed/x.txt", "file_text": "a\ud83db"})
    done = work(said(odd, cat, edit, bash("echo '\ud83d'"), finish(), fn_calling=fn_calling), fn_calling=fn_calling)
    assert done.reason is StopReason.FINISHED
    assert any("odd" in (result.content or "") for result in done.observed)


def test_a_call_by_function_calling_where_none_was_offered_is_corrected(work: Work) -> None:
    done = work(said(call("execute_bash", cmd="touch one"), finish(), fn_calling=False), fn_calling=False)
    assert done.reason is StopReason.FINISHED
    assert not (work.box.testbed / "one").exists()
    assert [message["role"] for message in done.messages] == ["system", "user", "assistant", "user"]
    assert "tool_calls" not in done.messages[2]
    turn = done.journal.turns[2]
    assert turn.extra is not None
    assert turn.extra["function_calls"] == [{"name": "execute_bash", "arguments": '{"cmd": "touch one"}'}]
