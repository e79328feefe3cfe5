"""Sections of the report's page, except its table, from a summary and a few figures per unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swe_argo.steps.contracts.families import SWEBENCH
from swe_argo.steps.contracts.run_spec import OFFICIAL_TIMEOUT_S
from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.comparison.view import view_comparison
from swe_argo.steps.reports.figures import confirmations
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.labels import STAGES, STOPS, in_order, kind_phrase, standing_labels, stop_phrase
from swe_argo.steps.reports.page.against import outcome_charts
from swe_argo.steps.reports.page.attempts import attempt_grid, explain_two_rates, pass_curve
from swe_argo.steps.reports.page.charts import histogram, stacked
from swe_argo.steps.reports.page.clusters import cluster_failures
from swe_argo.steps.reports.page.crossing import cross_stops
from swe_argo.steps.reports.page.glance import glance
from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.stored_run import Standing
from swe_argo.steps.reports.text.formatting import listing, utc
from swe_argo.steps.reports.text.visible import make_visible

__all__ = ["UnitFigures", "report_sections"]

SLOWEST = 10
MAX_UNITS = 50
"""Maximum number of named units without a verdict, suspect units, and unconfirmed units."""
MAX_STAGES = 8
MIN_SHARE = 0.005  # of the total time; shorter stages are not drawn


def report_sections(
    summary: Summary, units: Sequence[UnitFigures], compared: Comparison | None = None, why_not: str = ""
) -> dict[str, Any]:
    """Return the sections' template variables. ``units``: in plan order; ``why_not``: see ``render_page``."""
    slowest = sorted(units, key=lambda unit: -unit.total_s)[:SLOWEST]
    longest = slowest[0].total_s if slowest else 0.0
    return {
        "summary": summary,
        "units": len(units),
        "phrase": kind_phrase(summary.conditions.kind),
        "facts": _facts(summary),
        "glance": glance(summary),
        "bar": _bar(summary),
        "outcomes": _outcomes(summary),
        "stops": _stops(summary),
        "crossed": cross_stops(units) if summary.conditions.kind == "agent" else None,
        "absent": listing([STOPS[one.reason].name for one in summary.stops if not one.units]),
        "clusters": cluster_failures(units),
        "against": outcome_charts(units) if summary.conditions.kind == "agent" else [],
        "curve": pass_curve(summary.pass_at),
        "two_rates": explain_two_rates(summary),
        "grid": attempt_grid(units),
        "stages": _stages(summary, units),
        "slowest": [(unit, round(100 * unit.total_s / longest, 2)) for unit in slowest] if longest else [],
        "without": [unit for unit in units if unit.standing == Standing.FAILED][:MAX_UNITS],
        "suspects": [unit for unit in units if unit.suspect][:MAX_UNITS],
        "unconfirmed": _by_reason(units),
        "many": len(summary.attempts) > 1,
        "comparison": view_comparison(compared) if compared else None,
        "hrefs": {unit.instance_id: unit.href for unit in units if unit.attempt == 1},
        "why_not": make_visible(why_not),
    }


def _by_reason(units: Sequence[UnitFigures]) -> dict[str, list[UnitFigures]]:
    """Return the resolved units that are not confirmed, by reason."""
    reasons: dict[str, list[UnitFigures]] = {}
    for unit in [unit for unit in units if unit.unconfirmed][:MAX_UNITS]:
        reasons.setdefault(unit.unconfirmed, []).append(unit)
    return reasons


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """Return (name, value) pairs: dataset, agent, model and conditions."""
    conditions, dataset, versions = summary.conditions, summary.dataset, summary.versions
    solving = {None: "", True: "open for the agent, ", False: "none for the agent, "}[conditions.solve_network]
    selection, selected = ", ".join(conditions.selection), conditions.selected
    confirmation = summary.confirmation or summary.counter_proof
    facts = [
        ("Dataset", f"{dataset.name}, {dataset.split}"),
        ("Revision", dataset.revision or f"rows {dataset.sha256[:12]}"),
        (
            "Instances",
            f"{selected:,}, selected by {selection}" if selection else f"all {selected:,}",
        ),
        ("Attempts", f"{len(summary.attempts)} per instance"),
        ("Agent", conditions.agent),
        ("Model", summary.model),
        ("Hints", "shown" if conditions.hints else "not shown"),
        ("Network", f"{solving}{'open' if conditions.grading_network else 'none'} for the tests"),
        ("Graded by", describe_grading(summary)),
        *([("Canary", summary.canary.word)] if summary.canary else []),
        *([("Confirmation", confirmations.format_confirmations(confirmation))] if confirmation else []),
        *([("Neighbour inputs", summary.headline.on_neighbours)] if summary.headline.neighbours else []),
        *([("Sandboxes", "; ".join(conditions.machines))] if conditions.machines else []),
        ("Code", f"swe-argo {versions.get('swe-argo', 'unknown')} {versions.get('code', '')[:12]}".strip()),
        ("Planned", utc(summary.created_at)),
        *([("Tags", listing(summary.tags))] if summary.tags else []),
    ]
    return [(name, make_visible(value)) for name, value in facts]


def describe_grading(summary: Summary) -> str:
    """Return grader and time limit of the tests; families other than SWE-bench have their own limits."""
    limit_s = summary.conditions.timeout_s
    own_limit = summary.families != [SWEBENCH] and limit_s == OFFICIAL_TIMEOUT_S
    return f"{summary.graders}, {'its own limit' if own_limit else f'{limit_s:,} s'} for tests"


def _bar(summary: Summary) -> Any:
    """Return the bar of outcomes; units whose agent was stopped by a limit are hatched."""
    parts = []
    for name, label in standing_labels(summary.failures).items():
        stopped_early = sum(summary.stopped.get(name, {}).values())
        number = summary.outcomes.get(name, 0)
        parts += [(label.tone, label.name, number - stopped_early, False)]
        parts += [(label.tone, label.name, stopped_early, True)]
    return stacked(parts)


def _outcomes(summary: Summary) -> list[dict[str, Any]]:
    """Return the segments of the bar as text, with their causes; only outcomes that occur."""
    bars = []
    for name, label in standing_labels(summary.failures).items():
        if number := summary.outcomes.get(name, 0):
            causes = {stop_phrase(reason): n for reason, n in summary.stopped.get(name, {}).items()}
            causes |= summary.failures if name == Standing.FAILED else {}
            outcome = {"label": label, "number": number, "share": number / summary.units, "causes": causes}
            bars.append(outcome | {"standing": name})
    return bars


def _stops(summary: Summary) -> list[dict[str, Any]]:
    """Return the stop reasons that occurred, most frequent first; empty without an agent."""
    if summary.conditions.kind != "agent":
        return []
    total = sum(stop.units for stop in summary.stops)
    return [
        {
            "name": STOPS[stop.reason].name,
            "meaning": STOPS[stop.reason].meaning,
            "units": stop.units,
            "resolved": stop.resolved,
            "width": round(100 * stop.units / total, 2),
            "good": round(100 * stop.resolved / total, 2),
        }
        for stop in sorted(summary.stops, key=lambda stop: -stop.units)
        if stop.units
    ]


def _stages(summary: Summary, units: Sequence[UnitFigures]) -> list[dict[str, Any]]:
    """Return the stages that take most of the time, in chronological order."""
    whole = summary.seconds.get("total")
    ranked = sorted(summary.seconds, key=lambda stage: -summary.seconds[stage].total)[:MAX_STAGES]
    bars = []
    for stage in in_order(ranked):
        values = [unit.total_s if stage == "total" else unit.seconds.get(stage, 0.0) for unit in units]
        spread = summary.seconds[stage]
        share = spread.total / whole.total if whole and whole.total else 0.0
        if share < MIN_SHARE:
            continue
        spread_columns = histogram([value for value in values if value] or [0.0])
        bars.append({"name": STAGES.get(stage, stage), "spread": spread, "share": share, "columns": spread_columns})
    return bars
