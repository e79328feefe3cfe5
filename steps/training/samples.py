"""Samples for a trainer, built from a unit's model calls, token by token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SampledCall:
    """A model call, in the tokens of the endpoint itself."""

    prompt: list[int]
    """Ids of the whole prompt."""
    output: list[int]
    """Ids that the model sampled, including the end token."""
    logprobs: list[float]
    """Natural logarithm of each output token's probability, from the model that sampled it."""
    step: int = 0
    """Number of its step in the trajectory, or of the call in a trace."""
    weights: str | None = None
    """Version of the weights that sampled it, from the endpoint's ``system_fingerprint``."""
    finish_reason: str | None = None


@dataclass(frozen=True)
class CallSpan:
    """Position of a call's output in the tokens of its sample: the prompt was ``tokens[:start]``."""

    start: int
    end: int
    step: int
    weights: str | None
    finish_reason: str | None


@dataclass
class TokenSequence:
    """Calls whose prompts each begin with all tokens of the call before. All lists have the same length."""

    tokens: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    """Whether the model wrote the token; tokens of others (prompts, tool results) are not trained on."""
    logprobs: list[float] = field(default_factory=list)
    """0 where not sampled."""
    calls: list[CallSpan] = field(default_factory=list)

    def is_extended_by(self, call: SampledCall) -> bool:
        """Return whether the call's prompt begins with all tokens of this stretch."""
        size = len(self.tokens)
        if len(call.prompt) < size or (size and call.prompt[size - 1] != self.tokens[-1]):  # fast reject without a copy
            return False
        return call.prompt[:size] == self.tokens

    def add(self, call: SampledCall) -> None:
        """Append a call that extends it: the new part of its prompt, then its output."""
        between = call.prompt[len(self.tokens) :]
        start, end = len(call.prompt), len(call.prompt) + len(call.output)
        self.tokens += [*between, *call.output]
        self.sampled += [False] * len(between) + [True] * len(call.output)
        self.logprobs += [0.0] * len(between) + call.logprobs
        self.calls.append(CallSpan(start, end, call.step, call.weights, call.finish_reason))


def merge_calls(calls: Iterable[SampledCall]) -> list[TokenSequence]:
    """Return the fewest stretches with every call once, in the order of their first calls: see ``add_call``."""
    stretches: list[TokenSequence] = []
    for call in calls:
        add_call(stretches, call)
    return stretches


def add_call(stretches: list[TokenSequence], call: SampledCall) -> None:
    """Extend the longest stretch with which the call's prompt begins, or start a new one.

    This separates an agent's several conversations (sub-agents, summaries), and starts a new stretch if a prompt was
    rendered differently (reasoning of earlier turns left out). Each call's output is in exactly one stretch.
    """
    fitting = [stretch for stretch in reversed(stretches) if stretch.is_extended_by(call)]
    if not fitting:
        fitting = [TokenSequence()]
        stretches += fitting
    max(fitting, key=lambda stretch: len(stretch.tokens)).add(call)
