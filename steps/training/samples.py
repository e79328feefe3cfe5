"""What a model was shown and what it answered, token by token: the calls of a unit -> samples that a trainer reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SampledCall:
    """One call of the model, in the tokens that the endpoint itself used."""

    prompt: list[int]
    """Ids of the whole prompt."""
    output: list[int]
    """Ids that the model sampled, the end token included."""
    logprobs: list[float]
    """Natural logarithm of the probability of each id of ``output``, as the model that sampled it had it."""
    step: int = 0
    """Number of its step in the trajectory, or of the call in a trace."""
    weights: str | None = None
    """Version of the weights that sampled it, as the endpoint tells it (``system_fingerprint``)."""
    finish_reason: str | None = None


@dataclass(frozen=True)
class CallSpan:
    """Where a call's output lies in the tokens of its sample: the prompt was ``tokens[:start]``."""

    start: int
    end: int
    step: int
    weights: str | None
    finish_reason: str | None


@dataclass
class Stretch:
    """Calls of which each one's prompt begins with all tokens of the one before. All lists are of one length."""

    tokens: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    """Whether the model wrote the token; what others wrote (prompts, results of tools) is not trained on."""
    logprobs: list[float] = field(default_factory=list)
    """0 where not sampled."""
    calls: list[CallSpan] = field(default_factory=list)

    def is_extended_by(self, call: SampledCall) -> bool:
        """Whether the call's prompt begins with all that is here."""
        size = len(self.tokens)
        if len(call.prompt) < size or (size and call.prompt[size - 1] != self.tokens[-1]):  # nearly all, without a copy
            return False
        return call.prompt[:size] == self.tokens

    def add(self, call: SampledCall) -> None:
        """Take a call that extends it: what is new in its prompt, then its output."""
        between = call.prompt[len(self.tokens) :]
        start, end = len(call.prompt), len(call.prompt) + len(call.output)
        self.tokens += [*between, *call.output]
        self.sampled += [False] * len(between) + [True] * len(call.output)
        self.logprobs += [0.0] * len(between) + call.logprobs
        self.calls.append(CallSpan(start, end, call.step, call.weights, call.finish_reason))


def stretches_of(calls: Iterable[SampledCall]) -> list[Stretch]:
    """The fewest stretches that hold every call once, in the order of their first calls: see ``add_call``."""
    stretches: list[Stretch] = []
    for call in calls:
        add_call(stretches, call)
    return stretches


def add_call(stretches: list[Stretch], call: SampledCall) -> None:
    """Extend the longest stretch that the call's prompt begins with, else begin one.

    So the conversations of an agent with several (sub-agents, summaries) are told apart, and a prompt that was rendered
    otherwise the next time (thoughts left out of earlier turns) is a stretch of its own. What a call sampled is counted
    in one stretch alone.
    """
    fitting = [stretch for stretch in reversed(stretches) if stretch.is_extended_by(call)]
    if not fitting:
        fitting = [Stretch()]
        stretches += fitting
    max(fitting, key=lambda stretch: len(stretch.tokens)).add(call)
