from __future__ import annotations

import pytest

from swe_argo.steps.agents import iterative
from swe_argo.steps.agents.iterative import Attempt
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.submission import prepare
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Artifact, Collection, TaskMachine
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason, Usage
from tests.steps.agents.machine import Box, shell
from tests.steps.agents.tasks import instance

REFUSED = (StopReason.ABSOLUTE_STEPS, b"diff")
ACCEPTED = (StopReason.FINISHED, b"diff")


def spec(**fields: object) -> AgentSpec:
    return AgentSpec.model_validate({"name": "r2egym", "iterative": True, "timeout_s": 100.0, **fields})


def attempt(result: tuple[StopReason, bytes] = REFUSED, message: str = "m") -> Attempt:
    recorder = Recorder(AgentInfo(name="r2egym", version="1"), "run", "o__r-1", 1)
    recorder.add_message("user", message)
    recorder.usage = Usage(calls=1, requests=2, prompt_tokens=10, completion_tokens=5, cost_usd=0.25)
    return Attempt(*result, recorder.attempt_trajectory(result[0], 1.0), 0.0)


def test_refused_attempt_is_repeated() -> None:
    assert iterative.needs_another_attempt(spec(), [attempt()], 50.0)
    assert iterative.needs_another_attempt(spec(), [attempt(), attempt()], 50.0)
    assert not iterative.needs_another_attempt(spec(), [attempt()] * 3, 50.0)
    assert iterative.needs_another_attempt(spec(iterative_max_attempts=4), [attempt()] * 3, 50.0)
    assert not iterative.needs_another_attempt(spec(), [attempt(ACCEPTED)], 50.0)
    assert not iterative.needs_another_attempt(spec(iterative=False), [attempt()], 50.0)
    assert not iterative.needs_another_attempt(spec(critic="pass"), [attempt()], 50.0)
    assert not iterative.needs_another_attempt(spec(name="idle"), [attempt()], 50.0)


def test_attempts_share_the_limits() -> None:
    assert not iterative.needs_another_attempt(spec(), [attempt()], 9.0)
    assert not iterative.needs_another_attempt(spec(max_total_tokens=30), [attempt()] * 2, 50.0)
    assert not iterative.needs_another_attempt(spec(max_cost_usd=0.5), [attempt()] * 2, 50.0)
    remaining = iterative.remaining_limits(spec(max_total_tokens=100, max_cost_usd=1), [attempt()] * 2, 50.0)
    assert remaining is not None
    assert (remaining.timeout_s, remaining.max_total_tokens, remaining.max_cost_usd) == (50.0, 70, 0.5)
    assert iterative.remaining_limits(spec(), [], 0.0) is None


@pytest.mark.parametrize(
    ("requested", "number", "used"), [(0.0, 1, 0.0), (0.0, 2, 0.1), (0.0, 3, 0.1), (0.7, 2, 0.7), (None, 2, None)]
)
def test_retries_raise_zero_temperature(requested: float | None, number: int, used: float | None) -> None:
    assert iterative.attempt_temperature(requested, number) == used


def test_merge_keeps_all_attempts() -> None:
    attempts = [attempt(message="first"), attempt(ACCEPTED, message="second"), attempt(message="third")]
    assert iterative.choose_attempt(spec(), attempts) == 1
    whole = iterative.merge_trajectories(attempts, 1)
    assert whole.steps[0].message == "second"
    assert whole.trajectory_id == "run/o__r-1/1"
    assert whole.notes == "attempt 2 of 3; its patch is graded"
    subagents = whole.subagent_trajectories or []
    assert [(trajectory.trajectory_id, trajectory.steps[0].message) for trajectory in subagents] == [
        ("run/o__r-1/1/1", "first"),
        ("run/o__r-1/1/3", "third"),
    ]
    assert whole.extra.usage == iterative.total_usage(attempts) == sum((a.usage for a in attempts), Usage())
    assert whole.extra.usage.cost_usd == 0.75
    assert whole.final_metrics is not None
    assert (whole.final_metrics.total_prompt_tokens, whole.final_metrics.total_steps) == (30, 3)
    assert subagents[0].extra.usage == attempts[0].usage
    records = iterative.describe_attempts(spec(), attempts, 1)
    assert [(record.number, record.accepted, record.chosen) for record in records] == [
        (1, False, False),
        (2, True, True),
        (3, False, False),
    ]


@pytest.mark.parametrize("any_box", ["bubblewrap"], indirect=True)
def test_empty_artifacts_are_no_answer(any_box: Box) -> None:
    machine = TaskMachine(collection=Collection(artifacts=[Artifact(source="/testbed/out")]))
    start = prepare(any_box.sandbox, instance(family="harbor", machine=machine))
    shell(any_box.testbed, "mkdir out; for n in $(seq 300); do touch out/$n; done")
    for text, is_accepted in (("", False), ("x", True)):
        (any_box.testbed / "out" / "z").write_text(text)
        result = start.take(any_box.sandbox)
        assert result.layer, result.note
        assert attempt((StopReason.FINISHED, result.answer)).is_accepted("finish_with_patch") is is_accepted


def test_single_attempt_is_unchanged() -> None:
    only = attempt(ACCEPTED)
    assert iterative.merge_trajectories([only], 0) is only.trajectory
    assert iterative.describe_attempts(spec(iterative=False), [only], 0) == []


PATCH = b"diff --git a/a b/a\n"


@pytest.mark.parametrize(
    ("critic", "reason", "patch", "accepted"),
    [
        ("finish_with_patch", StopReason.FINISHED, PATCH, True),
        ("finish_with_patch", StopReason.MAX_STEPS, PATCH, True),
        ("finish_with_patch", StopReason.FINISHED, b"\n", False),
        ("finish_with_patch", StopReason.ABSOLUTE_STEPS, PATCH, False),
        ("finish_with_patch", StopReason.TIMEOUT, PATCH, False),
        ("empty_patch", StopReason.TIMEOUT, PATCH, True),
        ("empty_patch", StopReason.FINISHED, b"", False),
        ("pass", StopReason.MALFORMED, b"", True),
    ],
)
def test_critics_accept_by_name(critic: str, reason: StopReason, patch: bytes, accepted: bool) -> None:
    assert attempt((reason, patch)).is_accepted(critic) is accepted


@pytest.mark.parametrize(
    ("attempts", "index"),
    [
        ([(StopReason.FINISHED, PATCH), (StopReason.FINISHED, PATCH)], 1),  # the newest that was accepted
        ([(StopReason.FINISHED, PATCH), (StopReason.ABSOLUTE_STEPS, PATCH)], 0),
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.MALFORMED, PATCH)], 0),  # an error is worse than a limit
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.TIMEOUT, PATCH)], 1),  # none accepted: the newest
        ([(StopReason.ABSOLUTE_STEPS, PATCH), (StopReason.FINISHED, b"")], 0),  # but not for no patch at all
        ([(StopReason.MALFORMED, b""), (StopReason.REFUSAL, b"")], 1),
        ([(StopReason.FINISHED, b"")], 0),
    ],
)
def test_critic_chooses_best_attempt(attempts: list[tuple[StopReason, bytes]], index: int) -> None:
    assert iterative.choose_attempt(spec(critic="finish_with_patch"), list(map(attempt, attempts))) == index
