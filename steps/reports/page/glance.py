"""Key figures beside the score on the first screen: cost, tokens, time, and stop reasons."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.labels import STOPS
from swe_argo.steps.reports.text.formatting import duration, money, percent, tokens

MAX_STOPS = 3


@dataclass(frozen=True, slots=True)
class GlanceFigure:
    """A key figure of the whole run."""

    name: str
    value: str
    about: str


def glance(summary: Summary) -> list[GlanceFigure]:
    """Return the known figures: cost, tokens, time and stop reasons."""
    return [*_model_use(summary), *_time(summary), *_endings(summary)]


def _model_use(summary: Summary) -> list[GlanceFigure]:
    cost = summary.cost
    if not cost.usage.calls:
        return []
    token_count = cost.usage.prompt_tokens + cost.usage.completion_tokens
    unit_price = f"{money(cost.usd_per_resolved)} per resolved issue" if cost.usd_per_resolved is not None else ""
    unit_tokens = f"{tokens(int(cost.tokens_per_resolved))} per resolved issue" if cost.tokens_per_resolved else ""
    price = cost.usage.cost_usd
    return [
        *([] if price is None else [GlanceFigure("Cost", money(price), unit_price)]),
        GlanceFigure("Tokens", tokens(token_count), unit_tokens),
    ]


def _time(summary: Summary) -> list[GlanceFigure]:
    whole = summary.seconds.get("total")
    if whole is None:
        return []
    about = f"median per unit; p95 {duration(whole.p95)}"
    return [GlanceFigure("Time", duration(whole.median), about)]


def _endings(summary: Summary) -> list[GlanceFigure]:
    """Return the share of agents that finished by themselves, and the other stop reasons."""
    total = sum(stop.units for stop in summary.stops)
    if not total or summary.conditions.kind != "agent":
        return []
    finished = sum(stop.units for stop in summary.stops if stop.reason == StopReason.FINISHED)
    unfinished = [stop for stop in summary.stops if stop.units and stop.reason != StopReason.FINISHED]
    unfinished.sort(key=lambda stop: -stop.units)
    names = [f"{STOPS[stop.reason].name} {stop.units:,}" for stop in unfinished[:MAX_STOPS]]
    more = sum(stop.units for stop in unfinished[MAX_STOPS:])
    about = ", ".join([*names, *([f"other {more:,}"] if more else [])])
    return [GlanceFigure("Agents finished", f"{percent(finished / total)} %", about)]
