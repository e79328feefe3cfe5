"""What an agent would have said and done: trajectories of any length, with texts of the size real ones have."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from swe_argo.steps.contracts.trajectory import (
    AgentExtra,
    AgentInfo,
    FinalMetrics,
    Metrics,
    MetricsExtra,
    Observation,
    Result,
    ResultExtra,
    StopReason,
    ToolCall,
    Trajectory,
    TrajectoryExtra,
    Turn,
    Usage,
)
from tests.steps.reports.texts import HOSTILE, ISSUE, REASONED, THOUGHTS

OBSERVED = 4_000
"""Characters of a usual observation."""
_CODE = (
    "     {n}\t    def _raw_delete(self, using):\n"
    "     {m}\t        query = self.query.clone()  # rows of related models are counted too\n"
)


def trajectory(
    unit: tuple[str, int],
    *,
    turns: int = 4,
    agent: str = "r2egym",
    model: str = "lab/model-1",
    stop: StopReason = StopReason.FINISHED,
    usage: Usage | None = None,
    priced: bool = True,
    hostile: bool = False,
    others: int = 0,
    observed: int = OBSERVED,
    temperature: float = 0.0,
) -> Trajectory:
    """One of ``turns`` answers of a model beside the two prompts. ``others``: attempts that were not chosen."""
    steps = _steps(turns, model, priced, hostile, observed)
    used = usage or Usage(calls=turns, requests=turns, prompt_tokens=9_000 * turns, completion_tokens=300 * turns)
    return Trajectory(
        session_id="synthetic",
        trajectory_id=f"synthetic/{unit[0]}/{unit[1]}",
        agent=AgentInfo(
            name=agent,
            version="0.1.0",
            model_name=model,
            extra=AgentExtra(format="function_calling", endpoint="https://llm.example/v1", temperature=temperature),
        ),
        steps=list(steps),
        final_metrics=FinalMetrics(total_steps=len(steps)),
        extra=TrajectoryExtra(
            instance_id=unit[0],
            attempt=unit[1],
            stop_reason=stop,
            usage=used,
            started_at="2026-11-20T22:00:00.000+00:00",
            seconds=100.0,
        ),
        subagent_trajectories=[
            trajectory(unit, turns=turns, agent=agent, model=model, stop=StopReason.MAX_STEPS, hostile=hostile)
            for _ in range(others)
        ]
        or None,
    )


def total(whole: Trajectory) -> Usage:
    """The sum over all turns, those of other attempts included."""
    usage = Usage()
    for turn in whole.steps:
        if turn.metrics is not None:
            m, x = turn.metrics, turn.metrics.extra or MetricsExtra()
            usage += Usage(
                calls=1,
                requests=x.requests,
                prompt_tokens=m.prompt_tokens or 0,
                cached_tokens=m.cached_tokens or 0,
                completion_tokens=m.completion_tokens or 0,
                reasoning_tokens=x.reasoning_tokens or 0,
                cost_usd=m.cost_usd,
                seconds=x.seconds,
            )
    return sum((total(subagent) for subagent in whole.subagent_trajectories or []), usage)


@cache
def _steps(turns: int, model: str, priced: bool, hostile: bool, observed: int) -> tuple[Turn, ...]:
    rng = random.Random(turns)
    evil = HOSTILE if hostile else ""
    steps = [
        Turn(step_id=1, timestamp=_at(0), source="system", message=f"You mend issues with the tools you have. {evil}"),
        Turn(step_id=2, timestamp=_at(0), source="user", message=f"{evil}Mend this issue in /testbed.\n\n{ISSUE}"),
    ]
    for n in range(turns):
        name, arguments = _call(rng, n, last=n == turns - 1, hostile=hostile)
        content = None if n == turns - 1 else _observation(rng, n, observed, hostile=hostile)
        prompt = 3_000 + 700 * n
        steps.append(
            Turn(
                step_id=n + 3,
                timestamp=_at(4 * n + 2),
                source="agent",
                model_name=model,
                message=evil + THOUGHTS[n % len(THOUGHTS)],
                reasoning_content=evil + REASONED if n % 3 == 0 else None,
                tool_calls=[ToolCall(tool_call_id=f"call_{n}", function_name=name, arguments=arguments)],
                observation=Observation(results=[Result(source_call_id=f"call_{n}", content=content, extra=_extra(n))]),
                metrics=Metrics(
                    prompt_tokens=prompt,
                    completion_tokens=rng.randint(80, 900),
                    cached_tokens=prompt - 700 if n else 0,
                    cost_usd=round(prompt * 1.1e-6, 6) if priced else None,
                    extra=MetricsExtra(
                        seconds=round(rng.uniform(0.5, 9), 2),
                        reasoning_tokens=40,
                        finish_reason="tool_calls",
                        request_id=f"req-{n:04d}",
                        requests=2 if n % 17 == 5 else 1,
                    ),
                ),
                llm_call_count=1,
            )
        )
    return tuple(steps)


def _call(rng: random.Random, n: int, *, last: bool, hostile: bool) -> tuple[str, dict[str, Any]]:
    if last:
        return "finish", {"command": "submit"}
    if hostile and n % 2:
        return HOSTILE.strip(), {HOSTILE: [HOSTILE, {HOSTILE: None}]}
    if n % 3 == 1:
        return "str_replace_editor", {
            "command": "str_replace",
            "path": "/testbed/src/query.py",
            "old_str": "        return removed\n",
            "new_str": f"        # {n}\n        return removed, counts\n",
        }
    tests = rng.randint(1, 40)
    return "execute_bash", {"command": f"cd /testbed && python -m pytest -q tests/delete -k 'count and {tests}'"}


def _observation(rng: random.Random, n: int, observed: int, *, hostile: bool) -> str:
    size = int(observed * rng.uniform(0.2, 1.8))
    lines = "".join(_CODE.format(n=k, m=k + 1) for k in range(1, 2 + size // 115, 2))
    if hostile:
        return HOSTILE + "\udcff\ud800" + "\x1b[1;31mFAILED\x1b[0m " + "y" * 60_000 + lines
    return f"\x1b[32mstep {n}\x1b[0m\n{lines}"


def _extra(n: int) -> ResultExtra:
    return ResultExtra(exit_code=n % 4 == 3, seconds=round(0.3 * n, 2), cut=n % 5 == 4, timed_out=n % 29 == 28)


def _at(seconds: int) -> str:
    return f"2026-11-20T{22 + seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.000+00:00"
