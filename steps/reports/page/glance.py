"""Key figures beside the score on the first screen: cost, tokens, time, and stop reasons."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.labels import STOPS
from swe_argo.steps.reports.text.formatting import duration, money, percent, tokens

STOPS_NAMED = 3


@dataclass(frozen=True, slots=True)
class GlanceFigure:
    """A key figure of the whole run."""

    name: str
    value: str
    about: str


def glance(summary: Summary) -> list[GlanceFigure]:
    """Return the known figures: cost, tokens, time, and how the agents ended."""
    return [*_model_use(summary), *_time(summary), *_endings(summary)]


def _model_use(summary: Summary) -> list[GlanceFigure]:
    cost = summary.cost
    if not cost.usage.calls:
        return []
    used = cost.usage.prompt_tokens + cost.usage.completion_tokens
    each_usd = f"{money(cost.usd_per_resolved)} a resolved issue" if cost.usd_per_resolved is not None else ""
    each_tokens = f"{tokens(int(cost.tokens_per_resolved))} a resolved issue" if cost.tokens_per_resolved else ""
    price = cost.usage.cost_usd
    return [
        *([] if price is None else [GlanceFigure("Cost", money(price), each_usd)]),
        GlanceFigure("Tokens", tokens(used), each_tokens),
    ]


def _time(summary: Summary) -> list[GlanceFigure]:
    whole = summary.seconds.get("total")
    if whole is None:
        return []
    about = f"median of a unit; p95 {duration(whole.p95)}"
    return [GlanceFigure("Time", duration(whole.median), about)]


def _endings(summary: Summary) -> list[GlanceFigure]:
    total = sum(one.units for one in summary.stops)
    if not total or summary.conditions.kind != "agent":
        return []
    finished = sum(one.units for one in summary.stops if one.reason == StopReason.FINISHED)
    others = [one for one in summary.stops if one.units and one.reason != StopReason.FINISHED]
    others.sort(key=lambda one: -one.units)
    names = [f"{STOPS[one.reason].name} {one.units:,}" for one in others[:STOPS_NAMED]]
    more = sum(one.units for one in others[STOPS_NAMED:])
    about = ", ".join([*names, *([f"other {more:,}"] if more else [])])
    return [GlanceFigure("Agents finished", f"{percent(finished / total)} %", about)]
