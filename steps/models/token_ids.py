"""Deduplication of recorded token ids: a prompt repeats the ids of the previous call, which are stored once."""

from __future__ import annotations

from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.reply import Message


class SharedIds:
    """The token ids of the last call."""

    def __init__(self) -> None:
        self._last: list[int] = []
        """Ids of the last call's whole prompt, then of its answer."""

    def recall(self, metrics: Metrics) -> None:
        """Register a recorded call that precedes the next one."""
        shared = metrics.extra.shared_prompt_ids or 0 if metrics.extra else 0
        prompt = metrics.prompt_token_ids
        # The record lacks the ids that its prompt shares with the call before it.
        self._last = [] if prompt is None else [*self._last[:shared], *prompt, *(metrics.completion_token_ids or [])]

    def add_token_ids(self, metrics: Metrics, messages: list[Message]) -> Metrics:
        """Return the metrics without the leading prompt ids that the previous call already recorded.

        A conversation without an assistant message is new: its first prompt is recorded in full.
        """
        prompt, completion = metrics.prompt_token_ids, metrics.completion_token_ids
        if prompt is None:
            self._last = []
            return metrics
        shared = 0
        if any(message.get("role") == "assistant" for message in messages):
            shared = count_common(self._last, prompt)
        self._last = [*prompt, *(completion or [])]
        if not shared or metrics.extra is None:
            return metrics
        extra = metrics.extra.model_copy(update={"shared_prompt_ids": shared})
        return metrics.model_copy(update={"prompt_token_ids": prompt[shared:], "extra": extra})


def count_common(first: list[int], second: list[int]) -> int:
    """Return the length of the common prefix."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    return next(place for place in range(shorter) if first[place] != second[place])
