"""Charts for several attempts at each instance: a pass@k curve, and a grid of instances by attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from swe_argo.steps.reports.figures.summary import PassAtK, Summary
from swe_argo.steps.reports.labels import STANDINGS
from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.stored_run import NO_VERDICT, Standing
from swe_argo.steps.reports.text.formatting import count, percent

DIFFERING_SHOWN = 100


@dataclass(frozen=True, slots=True)
class PassCurve:
    """pass@k over k, in a box of 100 by 100."""

    line: str
    band: str
    """Points of the estimate, and of the polygon around the intervals."""
    dots: list[tuple[float, float, PassAtK]]


@dataclass(frozen=True, slots=True)
class AttemptGrid:
    """All instances by attempts, those resolved most often first."""

    width: int
    height: int
    cells: list[tuple[str, str]]
    """(tone, SVG path of cells one high)."""
    legend: list[tuple[str, str]]
    """(tone, name) of the tones that occur."""
    words: str
    differing: list[tuple[str, list[tuple[UnitFigures, str]]]]
    """Instances resolved by some attempts and not by others: (id, its units with a sign each)."""
    left_out: int


def pass_curve(passes: Sequence[PassAtK]) -> PassCurve | None:
    """Return the curve, or None if there are fewer than two points."""
    if len(passes) < 2:
        return None
    first, span = passes[0].k, passes[-1].k - passes[0].k
    xs = [round(100 * (one.k - first) / span, 2) for one in passes]

    def points(xs: Sequence[float], shares: Sequence[float]) -> str:
        return " ".join(f"{x},{round(100 * (1 - share), 2)}" for x, share in zip(xs, shares, strict=True))

    high, low = [one.high for one in passes], [one.low for one in passes]
    return PassCurve(
        line=points(xs, [one.estimate for one in passes]),
        band=f"{points(xs, high)} {points(xs[::-1], low[::-1])}",
        dots=[(x, round(100 * (1 - one.estimate), 2), one) for x, one in zip(xs, passes, strict=True)],
    )


def explain_two_rates(summary: Summary) -> str:
    """Return why the headline and the curve's pass@1 differ; empty if they are equal."""
    rate, first = summary.headline.rate, next((one for one in summary.pass_at if one.k == 1), None)
    if rate is None or first is None or percent(rate) == percent(first.estimate):
        return ""
    return (
        f"The headline, {percent(rate)} %, counts attempts without a verdict as not resolved; "
        f"this pass@1, {percent(first.estimate)} %, is the mean over attempts that have a verdict, "
        f"at {count(first.instances, 'instance')}."
    )


def attempt_grid(units: Sequence[UnitFigures]) -> AttemptGrid | None:
    """Return the grid, or None if no instance has more than one attempt."""
    by_instance: dict[str, list[UnitFigures]] = {}
    for unit in units:
        by_instance.setdefault(unit.instance_id, []).append(unit)
    height = max((len(some) for some in by_instance.values()), default=0)
    if height < 2:
        return None
    resolved = {one: sum(unit.standing == Standing.RESOLVED for unit in some) for one, some in by_instance.items()}
    judged = {one: sum(unit.standing not in NO_VERDICT for unit in some) for one, some in by_instance.items()}
    ordered = sorted(by_instance, key=lambda one: (-resolved[one], [unit.standing for unit in by_instance[one]], one))
    found = {unit.standing for unit in units}
    differing = [one for one in ordered if 0 < resolved[one] < judged[one]]
    always = sum(0 < judged[one] == resolved[one] for one in ordered)
    never = sum(judged[one] > 0 == resolved[one] for one in ordered)
    return AttemptGrid(
        width=len(ordered),
        height=height,
        cells=[*_draw([by_instance[one] for one in ordered]).items()],
        legend=[(label.tone, label.name) for name, label in STANDINGS.items() if name in found],
        words=f"{always:,} resolved by every attempt with a verdict, {len(differing):,} by some, {never:,} by none",
        differing=[(one, [(unit, _sign(unit)) for unit in by_instance[one]]) for one in differing[:DIFFERING_SHOWN]],
        left_out=max(0, len(differing) - DIFFERING_SHOWN),
    )


def _draw(instances: Sequence[Sequence[UnitFigures]]) -> dict[str, str]:
    """Return tone -> path; adjacent cells of one tone are merged, because there may be ten thousand units."""
    rows: dict[int, list[tuple[int, str]]] = {}
    for x, some in enumerate(instances):
        for unit in some:
            rows.setdefault(unit.attempt - 1, []).append((x, unit.label.tone))
    paths: dict[str, str] = {}
    for y, cells in rows.items():
        for (_, tone), run in groupby(enumerate(cells), key=lambda item: (item[1][0] - item[0], item[1][1])):
            stretch = [cell for _, cell in run]
            length = len(stretch)
            paths[tone] = f"{paths.get(tone, '')}M{stretch[0][0]} {y}h{length}v1h-{length}z"
    return paths


def _sign(unit: UnitFigures) -> str:
    return "✓" if unit.standing == Standing.RESOLVED else "·" if unit.standing in NO_VERDICT else "✗"
