"""Builder of trajectories of any length, with texts as long as real ones, plausible or hostile."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from swe_argo.steps.contracts import trajectory as atif
from swe_argo.steps.contracts.trajectory import StopReason, ToolCall, Trajectory, Turn, Usage

HOSTILE = (
    "<script>document.title='owned'</script></details></table><img src=x onerror=document.title=1>"
    "\x1b[2J\x1b[31mred\x1b[0m \x00 NUL \x9b31m \u202egnp.exe\u202c {{ 7*7 }} "
    "</style><style>*{display:none}</style>\r\n"
)
"""Markup, escapes and invisible characters that must not take effect on a page."""
ISSUE = """QuerySet.delete() reports a number of rows that depends on the model.

With no related objects the count has no entry for the model itself, with related ones it has an entry of zero:

    >>> Book.objects.none().delete()
    (0, {})
    >>> Author.objects.none().delete()
    (0, {'library.Author': 0})

Both are documented to look the same. Seen on main, with SQLite and with PostgreSQL, in tests that compare the two.
The difference comes from the fast path, which some models take and others do not; users see neither, and code that
reads the dictionary by name breaks on one of them.
"""
THOUGHTS = (
    "I will look at how the rows are counted before I change anything: the two paths of delete() must agree.",
    "The fast path returns early and never touches the counter. The edit makes it leave no entry when nothing went.",
    "Now the tests beside it. I expect the count of the empty case to change and everything else to stay as it was, "
    "because only the branch for zero rows is different.",
    "One test still fails: the collector counts a model that had no rows. I will see where that entry is made.",
    "The same rule belongs into the collector, so that both ways say nothing about models that lost nothing.",
)
REASONING = (
    "Two places count: the query, which knows how many rows the database removed, and the collector, which adds them "
    "up by model. If only one of them leaves zeros out, the result depends on which of them ran last."
)
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
) -> Trajectory:
    """Return a trajectory of two prompts and ``turns`` answers, and ``others`` inner attempts that were not chosen."""
    steps = _steps(turns, model, priced, hostile, observed)
    used = usage or Usage(calls=turns, requests=turns, prompt_tokens=9_000 * turns, completion_tokens=300 * turns)
    extra = atif.AgentExtra(format="function_calling", endpoint="https://llm.example/v1", temperature=0.0)
    inner: dict[str, Any] = {"turns": turns, "agent": agent, "model": model, "hostile": hostile, "observed": observed}
    return Trajectory(
        session_id="synthetic",
        trajectory_id=f"synthetic/{unit[0]}/{unit[1]}",
        agent=atif.AgentInfo(name=agent, version="0.1.0", model_name=model, extra=extra),
        steps=list(steps),
        final_metrics=atif.FinalMetrics(total_steps=len(steps)),
        extra=atif.TrajectoryExtra(
            instance_id=unit[0],
            attempt=unit[1],
            stop_reason=stop,
            usage=used,
            started_at="2026-11-20T22:00:00.000+00:00",
            seconds=100.0,
        ),
        subagent_trajectories=[trajectory(unit, stop=StopReason.MAX_STEPS, **inner) for _ in range(others)] or None,
    )


@cache
def _steps(turns: int, model: str, priced: bool, hostile: bool, observed: int) -> tuple[Turn, ...]:
    rng = random.Random(turns)
    evil = HOSTILE if hostile else ""
    issue = f"{evil}Mend this issue in /testbed.\n\n{ISSUE}"
    steps = [
        Turn(step_id=1, timestamp=_at(0), source="system", message=f"You mend issues with the tools you have. {evil}"),
        Turn(step_id=2, timestamp=_at(0), source="user", message=issue),
    ]
    for n in range(turns):
        name, arguments = _call(rng, n, last=n == turns - 1, hostile=hostile)
        content = None if n == turns - 1 else _observation(rng, n, observed, hostile=hostile)
        result = atif.Result(source_call_id=f"call_{n}", content=content, extra=_result_extra(n))
        steps.append(
            Turn(
                step_id=n + 3,
                timestamp=_at(4 * n + 2),
                source="agent",
                model_name=model,
                message=evil + THOUGHTS[n % len(THOUGHTS)],
                reasoning_content=evil + REASONING if n % 3 == 0 else None,
                tool_calls=[ToolCall(tool_call_id=f"call_{n}", function_name=name, arguments=arguments)],
                observation=atif.Observation(results=[result]),
                metrics=_metrics(rng, n, priced=priced),
                llm_call_count=1,
            )
        )
    return tuple(steps)


def _metrics(rng: random.Random, n: int, *, priced: bool) -> atif.Metrics:
    prompt = 3_000 + 700 * n
    return atif.Metrics(
        prompt_tokens=prompt,
        completion_tokens=rng.randint(80, 900),
        cached_tokens=prompt - 700 if n else 0,
        cost_usd=round(prompt * 1.1e-6, 6) if priced else None,
        extra=atif.MetricsExtra(
            seconds=round(rng.uniform(0.5, 9), 2),
            reasoning_tokens=40,
            finish_reason="tool_calls",
            request_id=f"req-{n:04d}",
            requests=2 if n % 17 == 5 else 1,
        ),
    )


def _call(rng: random.Random, n: int, *, last: bool, hostile: bool) -> tuple[str, dict[str, Any]]:
    if last:
        return "finish", {"command": "submit"}
    if hostile and n % 2:
        return HOSTILE.strip(), {HOSTILE: [HOSTILE, {HOSTILE: None}]}
    if n % 3 == 1:
        old, new = "        return removed\n", f"        # {n}\n        return removed, counts\n"
        edit = {"command": "str_replace", "path": "/testbed/src/query.py", "old_str": old, "new_str": new}
        return "str_replace_editor", edit
    tests = rng.randint(1, 40)
    return "execute_bash", {"command": f"cd /testbed && python -m pytest -q tests/delete -k 'count and {tests}'"}


def _observation(rng: random.Random, n: int, observed: int, *, hostile: bool) -> str:
    size = int(observed * rng.uniform(0.2, 1.8))
    lines = "".join(_CODE.format(n=k, m=k + 1) for k in range(1, 2 + size // 115, 2))
    if hostile:
        return HOSTILE + "\udcff\ud800" + "\x1b[1;31mFAILED\x1b[0m " + "y" * 60_000 + lines
    return f"\x1b[32mstep {n}\x1b[0m\n{lines}"


def _result_extra(n: int) -> atif.ResultExtra:
    return atif.ResultExtra(exit_code=n % 4 == 3, seconds=round(0.3 * n, 2), cut=n % 5 == 4, timed_out=n % 29 == 28)


def _at(seconds: int) -> str:
    return f"2026-11-20T{22 + seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.000+00:00"
