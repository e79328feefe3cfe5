"""Token ids of a conversation, each recorded once: a prompt begins with what the call before recorded."""

from __future__ import annotations

from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.reply import Message


class SharedIds:
    """Remembers the ids of the last call."""

    def __init__(self) -> None:
        self._last: list[int] = []

    def recall(self, metrics: Metrics) -> None:
        """A call that was recorded before comes before the next."""
        shared = metrics.extra.shared_prompt_ids or 0 if metrics.extra else 0
        prompt = metrics.prompt_token_ids
        self._last = [] if prompt is None else [*self._last[:shared], *prompt, *(metrics.completion_token_ids or [])]

    def add_token_ids(self, metrics: Metrics, messages: list[Message]) -> Metrics:
        """The metrics, their prompt ids without those that lead the prompt and are known from the call before.

        A conversation in which nobody has answered yet is a new one: its first prompt is recorded whole.
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


def count_common(one: list[int], other: list[int]) -> int:
    """With how many ids both begin."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])
