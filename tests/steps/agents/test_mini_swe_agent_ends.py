from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("minisweagent", reason="needs the extra mini-swe-agent")

from swe_argo.steps.agents import mini_swe_agent
from swe_argo.steps.agents.mini_swe_agent import library
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.local.backend import LocalBackend
from tests.model_server import Answer, Fault
from tests.model_server.answers import BAD_KEY, CONTEXT_OPENAI, SERVER_ERROR
from tests.steps.agents.machine import Box
from tests.steps.agents.mini_answers import EDIT, SUBMIT, in_turn, say
from tests.steps.agents.tasks import agrees, observations, open_task


def test_unparsed_answer_counts_as_cost(box: Box) -> None:
    script = in_turn(Answer("no call", cost_usd=0.6), say("true", True, cost_usd=0.6))
    with open_task(script, box.sandbox, "mini-swe-agent", max_cost_usd=1.0) as (task, server):
        assert mini_swe_agent.act(task) is StopReason.COST_LIMIT
    assert server.counts.calls == 2
    assert task.recorder.usage.cost_usd == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("spec", "reason", "calls"),
    [
        ({"max_steps": 3}, StopReason.ABSOLUTE_STEPS, 3),
        ({"max_steps_absolute": 2}, StopReason.ABSOLUTE_STEPS, 2),
        ({"max_token_limit": 4000}, StopReason.CONTEXT_LIMIT, 1),
        ({"max_total_tokens": 9000}, StopReason.TOKEN_LIMIT, 2),
        ({}, StopReason.COST_LIMIT, 3),
    ],
)
def test_each_limit_has_its_reason(box: Box, spec: dict[str, Any], reason: StopReason, calls: int) -> None:
    """The last: the library's own three dollars."""
    script = in_turn(say("true", True, cost_usd=None if spec else 1.0, prompt_tokens=5000))
    with open_task(script, box.sandbox, "mini-swe-agent", **spec) as (task, server):
        assert mini_swe_agent.act(task) is reason
        agrees(task, server)
    assert server.counts.calls == calls


def test_default_steps_match_library() -> None:
    for fn_calling in (True, False):
        config = library.swebench_config(library.load(), fn_calling=fn_calling, max_observation=None)
        assert config["agent"]["step_limit"] == AgentSpec(name="mini-swe-agent").hard_step_limit


def test_agent_may_exceed_loop_default(box: Box) -> None:
    script = in_turn(*[say(":", True)] * 60, say(f"touch patch.txt; {SUBMIT}", True))
    with open_task(script, box.sandbox, "mini-swe-agent", max_token_limit=10**9) as (task, server):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
    assert server.counts.calls == 61


def test_timeout_ends_agent_and_command(any_box: Box) -> None:
    for timeout_s in (6, 40):  # a busy machine may need longer to begin
        script = in_turn(say("echo early; sleep 600", True))
        with open_task(script, any_box.sandbox, "mini-swe-agent", timeout_s=timeout_s) as (task, _):
            assert mini_swe_agent.act(task) is StopReason.TIMEOUT
        if any("early" in (result.content or "") for result in observations(task)):
            break
    (observation,) = observations(task)
    assert observation.content is not None
    assert "timed out after" in observation.content
    assert "early" in observation.content
    assert observation.extra is not None
    assert observation.extra.timed_out


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (CONTEXT_OPENAI, StopReason.CONTEXT_OVERFLOW),
        (Answer(refusal="I cannot help with that."), StopReason.REFUSAL),
        (Answer("", finish_reason="content_filter"), StopReason.CONTENT_FILTER),
    ],
)
def test_endpoint_end_is_agent_outcome(box: Box, fault: Fault | Answer, reason: StopReason) -> None:
    with open_task(in_turn(say(EDIT, True), fault), box.sandbox, "mini-swe-agent") as (task, server):
        assert mini_swe_agent.act(task) is reason
        agrees(task, server)
    assert (box.testbed / "a.py").read_text() == "a = 3\n"


@pytest.mark.parametrize(("fault", "kind"), [(SERVER_ERROR, InfraError), (BAD_KEY, ConfigError)])
def test_endpoint_error_is_raised(box: Box, fault: Fault, kind: type[Exception]) -> None:
    with open_task(in_turn(say("true", True), fault), box.sandbox, "mini-swe-agent") as (task, server):
        with pytest.raises(kind):
            mini_swe_agent.act(task)
        assert task.recorder.usage == task.model.usage
        assert task.recorder.usage.requests == server.counts.requests
    assert len(observations(task)) == 1


def test_lost_sandbox_is_raised(any_box: Box) -> None:
    def script(request: dict[str, Any]) -> Answer:
        if len(request["messages"]) > 2:
            LocalBackend(Path(), isolated=True).destroy(any_box.sandbox)
        return say("echo here", True)

    with open_task(script, any_box.sandbox, "mini-swe-agent") as (task, _), pytest.raises(InfraError):
        mini_swe_agent.act(task)
    assert len(observations(task)) == 1
    assert [turn.source for turn in task.recorder.turns][-1] == "agent"
