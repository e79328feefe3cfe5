"""Charts of a training's page, grouped by section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swe_argo.steps.contracts.training import StepFigures
from swe_argo.steps.reports.text.formatting import decimal, duration, percent
from swe_argo.steps.reports.training.curves import Axis, Columns, Curve, draw_columns, draw_curve
from swe_argo.steps.reports.training.metrics import infra_share
from swe_argo.steps.reports.training.stored_training import StoredTraining


@dataclass(frozen=True, slots=True)
class Drawings:
    """The curves of each section of the page. ``unknown``: names of figures without any value."""

    axis: Axis
    learning: list[Curve]
    health: list[Curve]
    rollout: list[Curve]
    """Averages per rollout."""
    tokens: list[Curve]
    """Sums over all rollouts of a step."""
    seconds: Columns | None
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of a step to draw: ``of`` returns its value, ``say`` formats it."""

    name: str
    say: Callable[[float], str]
    of: Callable[[StepFigures], float | None]


def _share(value: float) -> str:
    return f"{percent(value)} %"


def _constant(step: StepFigures) -> float | None:
    """Return the share of groups whose rollouts all have the same reward; None without groups."""
    return sum(group.constant for group in step.groups) / len(step.groups) if step.groups else None


_LEARNING = (
    _Figure("Mean reward", decimal, lambda one: one.reward_mean),
    _Figure("Resolved rollouts", _share, lambda one: one.resolved_share),
)
_HEALTH = (
    _Figure("KL", decimal, lambda one: one.kl),
    _Figure("Entropy", decimal, lambda one: one.entropy),
    _Figure("Loss", decimal, lambda one: one.loss),
    _Figure("Groups with equal rewards", _share, _constant),
    _Figure("Infrastructure failures", _share, infra_share),
    _Figure("Lag, in steps", decimal, lambda one: one.lag),
)
_ROLLOUT = (
    _Figure("Turns", decimal, lambda one: one.turns_mean),
    _Figure("Sampled tokens", decimal, lambda one: one.sampled_tokens_mean),
    _Figure("Prompt tokens", decimal, lambda one: one.prompt_tokens_mean),
)
_TOKENS = (
    _Figure("Tokens sampled", decimal, lambda one: one.tokens.get("sampled")),
    _Figure("Tokens of prompts", decimal, lambda one: one.tokens.get("prompt")),
    _Figure("Tokens trained on", decimal, lambda one: one.tokens.get("trained")),
)


def draw_training(training: StoredTraining) -> Drawings:
    """Return all charts, over the same steps."""
    steps, held_out = training.steps, training.held_out
    numbers = [*(item.step for item in steps), *held_out] or [0]
    axis = Axis(min(numbers), max(numbers))
    rates = {step: summary.headline for step, summary in sorted(held_out.items()) if summary.valid}
    measured = draw_curve(
        "Held out, resolved",
        {step: rate.rate for step, rate in rates.items()},
        axis,
        _share,
        {step: (rate.low, rate.high) for step, rate in rates.items() if rate.rate is not None},
    )
    unknown: list[str] = []

    def draw(figures: tuple[_Figure, ...]) -> list[Curve]:
        """Return the curves of these figures; note the names of those without any value in ``unknown``."""
        curves = []
        for figure in figures:
            curve = draw_curve(figure.name, {item.step: figure.of(item) for item in steps}, axis, figure.say)
            if curve is None:
                unknown.append(figure.name)
            else:
                curves.append(curve)
        return curves

    return Drawings(
        axis,
        [*([measured] if measured else []), *draw(_LEARNING)],
        draw(_HEALTH),
        draw(_ROLLOUT),
        draw(_TOKENS),
        draw_columns("Time", [item.seconds for item in steps], duration),
        unknown if steps else [],
    )
