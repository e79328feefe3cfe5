"""Model calls in a trajectory, or in a trace of the proxy, as tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from swe_argo.steps.agents.formats.atif import with_whole_prompts
from swe_argo.steps.contracts.trajectory import Metrics, MetricsExtra, Trajectory, Turn
from swe_argo.steps.training.samples import SampledCall


class NoTokensError(ValueError):
    """Raised for a call without tokens. Its text is never tokenized again: the sampled tokens may have differed."""


def calls_of(trajectory: Trajectory) -> list[SampledCall]:
    """Return every answered call in order, followed by those of the attempt's further conversations.

    Attempts that were not chosen are left out: they have no verdict. Raises NoTokensError if a call lacks its tokens,
    ValueError if the trajectory contradicts itself.
    """
    beside = [other for other in trajectory.subagent_trajectories or [] if other.extra.beside]
    whole = with_whole_prompts(trajectory.model_copy(update={"subagent_trajectories": beside}))
    return [call for one in (whole, *(whole.subagent_trajectories or [])) for call in _calls(one.steps)]


def calls_of_trace(lines: Iterable[str | bytes]) -> list[SampledCall]:
    """Return the calls of one rollout of any agent from the proxy's trace: one JSON object per line.

    Raises NoTokensError if a call lacks its tokens, ValueError or KeyError if it is not a trace.
    """
    calls = []
    for step, row in enumerate(map(json.loads, lines), 1):
        metrics = Metrics(
            prompt_token_ids=row["prompt_token_ids"], completion_token_ids=row["token_ids"], logprobs=row["logprobs"]
        )
        calls.append(_call(metrics, step, row["weights"], row["finish_reason"]))
    return calls


def _calls(turns: list[Turn]) -> Iterator[SampledCall]:
    """Yield the calls of the agent's turns that a model answered."""
    for turn in turns:
        if turn.source != "agent" or turn.metrics is None:
            continue
        extra = turn.metrics.extra or MetricsExtra()
        yield _call(turn.metrics, turn.step_id, extra.fingerprint, extra.finish_reason)


def _call(metrics: Metrics, step: int, weights: str | None, finish_reason: str | None) -> SampledCall:
    """Return one call. Raises NoTokensError if the endpoint did not return all its tokens."""
    if reason := _missing(metrics):
        raise NoTokensError(f"step {step}: {reason}")
    return SampledCall(
        prompt=metrics.prompt_token_ids or [],
        output=metrics.completion_token_ids or [],
        logprobs=metrics.logprobs or [],
        step=step,
        weights=weights,
        finish_reason=finish_reason,
    )


def _missing(metrics: Metrics) -> str:
    """Return the data that the endpoint did not return for a call; empty if all is there."""
    required = {
        "ids of the prompt": metrics.prompt_token_ids,
        "ids of the answer": metrics.completion_token_ids,
        "log probabilities": metrics.logprobs,
    }
    if missing := [name for name, value in required.items() if value is None]:
        return f"the endpoint returned no {' and no '.join(missing)}"
    ids, logprobs = len(metrics.completion_token_ids or []), len(metrics.logprobs or [])
    return "" if ids == logprobs else f"the endpoint returned {ids} ids of the answer but {logprobs} log probabilities"
