from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.agents.limits import EXCUSED_S, Limits
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.trajectory import Metrics, StopReason, Usage
from swe_argo.steps.errors import InfraError

USER_MESSAGE = {"role": "user", "content": "x" * 3500}  # a thousand tokens, as it is estimated
ANSWER = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "n", "arguments": "y" * 3500}}]}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock | None = None, **spec: Any) -> Limits:
    return Limits(AgentSpec.model_validate({"name": "r2egym", **spec}), clock or Clock())


def answered(limits: Limits, times: int, metrics: Metrics | None = None) -> None:
    for _ in range(times):
        limits.answered({"role": "assistant", "content": ""}, metrics or Metrics(prompt_tokens=1, completion_tokens=1))


def test_default_limits_match_r2e_gym() -> None:
    default = limits()
    assert default.remaining == 40
    assert default.command_s == 90
    answered(default, 1, Metrics(prompt_tokens=65_000, completion_tokens=535))
    assert default.reached(Usage()) is None
    answered(default, 1, Metrics(prompt_tokens=65_000, completion_tokens=536))
    assert default.reached(Usage()) is StopReason.CONTEXT_LIMIT


def test_absolute_steps_follow_max_steps() -> None:
    default = limits()
    answered(default, 40)
    assert default.remaining == 0
    assert default.reached(Usage()) is None
    answered(default, 9)
    assert default.reached(Usage()) is None
    answered(default, 1)
    assert default.reached(Usage()) is StopReason.ABSOLUTE_STEPS
    longer = limits(max_steps=100)
    answered(longer, 109)
    assert longer.reached(Usage()) is None
    short = limits(max_steps=2, max_steps_absolute=2)
    answered(short, 2)
    assert short.reached(Usage()) is StopReason.ABSOLUTE_STEPS
    assert limits(max_steps_absolute=20).remaining == 20, "it is told before it is ended"


def test_context_adds_later_messages() -> None:
    some = limits(max_token_limit=5000)
    some.count_message(USER_MESSAGE)
    answered(some, 1, Metrics(prompt_tokens=3000, completion_tokens=500))
    assert some.reached(Usage()) is None
    some.count_message(USER_MESSAGE)
    assert some.reached(Usage()) is None
    some.count_message(USER_MESSAGE)
    assert some.reached(Usage()) is StopReason.CONTEXT_LIMIT


def test_missing_counts_are_estimated() -> None:
    some = limits(max_token_limit=2900)
    some.count_message(USER_MESSAGE)
    some.answered(ANSWER, Metrics())
    assert some.reached(Usage()) is None
    some.count_message(USER_MESSAGE)
    assert some.reached(Usage()) is StopReason.CONTEXT_LIMIT
    total = limits(max_total_tokens=5900)
    total.count_message(USER_MESSAGE)
    total.answered(ANSWER, Metrics())  # 1000 in, 1000 out
    assert total.reached(Usage()) is None
    total.count_message(USER_MESSAGE)
    total.answered(ANSWER, Metrics())  # 3000 in, 1000 out
    assert total.reached(Usage()) is StopReason.TOKEN_LIMIT


@pytest.mark.parametrize(
    ("spec", "usage", "reason"),
    [
        ({"max_total_tokens": 100}, Usage(prompt_tokens=60, completion_tokens=39), None),
        ({"max_total_tokens": 100}, Usage(prompt_tokens=60, completion_tokens=40), StopReason.TOKEN_LIMIT),
        ({"max_cost_usd": 0.5}, Usage(cost_usd=0.49), None),
        ({"max_cost_usd": 0.5}, Usage(cost_usd=0.5), StopReason.COST_LIMIT),
        ({"max_cost_usd": 0.5}, Usage(), None),
    ],
)
def test_tokens_and_cost_are_limited(spec: dict[str, Any], usage: Usage, reason: StopReason | None) -> None:
    assert limits(**spec).reached(usage) is reason


def test_time_limits_run_and_command() -> None:
    clock = Clock()
    some = limits(clock, timeout_s=100, command_timeout_s=30)
    assert (some.left_s, some.command_s) == (100, 30)
    clock.now = 80
    assert (some.left_s, some.command_s) == (20, 20)
    assert some.reached(Usage()) is None
    clock.now = 101
    assert some.reached(Usage()) is StopReason.TIMEOUT
    assert some.left_s > 0


def test_endpoint_delay_is_not_counted() -> None:
    clock = Clock()
    spent = limits(clock, timeout_s=100)
    spent.lost(40)
    clock.now = 139
    assert not spent.out_of_time
    assert spent.left_s == pytest.approx(1)
    clock.now = 141
    assert spent.out_of_time


def test_too_long_endpoint_delay_raises() -> None:
    clock = Clock()
    spent = limits(clock, timeout_s=100)
    spent.lost(EXCUSED_S + 50)
    clock.now = 100 + EXCUSED_S + 1
    with pytest.raises(InfraError, match="kept the agent waiting for 350 of its 100 s"):
        spent.reached(Usage())
