"""Page of a run: the sections of its report, the running units, and a table of all units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import QueryParams

from swe_argo.steps.contracts.unit_progress import UnitProgress
from swe_argo.steps.reports.labels import STANDINGS, STOPS
from swe_argo.steps.reports.page.sections import report_sections
from swe_argo.steps.reports.text.formatting import duration, money, tokens
from swe_argo.steps.reports.text.visible import make_visible
from swe_argo.steps.reports.unit.progress import PHASES, phase_seconds
from swe_argo.workflows.local.at_work import find_units_at_work
from swe_argo.workflows.view.addresses import report_url, run_url, unit_url
from swe_argo.workflows.view.answered_units import RUNNING_WINDOW_S
from swe_argo.workflows.view.run_states import RunState
from swe_argo.workflows.view.tables import read_state, show_table
from swe_argo.workflows.view.timeline import draw_timeline
from swe_argo.workflows.view.unit_lines import UNIT_COLUMNS, UNIT_FILTERS, UnitLine, figures_of

NAMES = {name: label.name for name, label in STANDINGS.items()} | {name: stop.name for name, stop in STOPS.items()}
"""Display names of the filters' choices."""


@dataclass(frozen=True)
class WorkingLine:
    """A unit in progress."""

    instance_id: str
    attempt: int
    href: str
    phase: str
    since: str
    turns: str
    """``12 of 40``; empty before the first turn."""
    tokens: str
    cost: str
    action: str
    answered: str
    """Age of the newest model response; empty if the step reports its progress itself."""


def run_context(state: RunState, query: QueryParams) -> dict[str, Any]:
    """Return the variables of the page's template."""
    figures = [figures_of(state.run_id, line) for line in state.lines]
    at_work = find_work(state)
    return {
        **report_sections(state.summary, figures, state.compared),
        "filtered": run_url(state.run_id),
        "beside_report": report_url(state.run_id, "") if state.reported else None,
        **units_context(state, query),
        "working": [working_line(state.run_id, progress, answered_at) for progress, answered_at in at_work],
        "timeline": draw_timeline(
            state.run_id, state.lines, [progress for progress, _ in at_work], query, datetime.now(UTC)
        ),
        "still": f"{RUNNING_WINDOW_S / 60:.0f} minutes",
        "ended": state.summary.units - state.summary.outcomes.get("not_run", 0),
    }


def find_work(state: RunState) -> Sequence[tuple[UnitProgress, datetime | None]]:
    """Return the running units, each with the time of its newest model response if only that is known.

    Steps on this machine take precedence, because they report newer progress and more phases.
    """
    if state.reported:
        return ()
    here = [unit.progress for unit in find_units_at_work(state.file)]
    names = {(one.instance_id, one.attempt) for one in here}
    elsewhere = [(one.progress, one.answered_at) for one in state.answered]
    answered = [(one, at) for one, at in elsewhere if (one.instance_id, one.attempt) not in names]
    return [*((one, None) for one in here), *answered]


def units_context(state: RunState, query: QueryParams) -> dict[str, Any]:
    """Return the variables of the table of units."""
    many = len(state.summary.attempts) > 1
    columns = [column for column in UNIT_COLUMNS if many or column.name != "attempt"]
    table_state = read_state(query, columns, UNIT_FILTERS)
    return {
        "state": state,
        "table": show_table(state.lines, table_state, columns, UNIT_FILTERS, lambda line: line.text),
        "many": many,
        "names": NAMES,
        "cells": lambda line: _cells(state.run_id, line),
    }


def _cells(run: str, line: UnitLine) -> dict[str, str]:
    """Return the cells that contain only text or numbers."""
    return {
        "href": unit_url(run, line.instance_id, line.attempt),
        "turns": "" if line.turns is None else f"{line.turns:,}",
        "tries": f"{line.tries}" if line.tries else "",
        "tokens": tokens(line.tokens) if line.tokens else "",
        "time": duration(line.total_s) if line.total_s else "",
        "cost": "" if line.cost_usd is None else money(line.cost_usd),
    }


def working_line(run: str, progress: UnitProgress, answered_at: datetime | None = None) -> WorkingLine:
    """Return the line of a running unit; ``answered_at``: time of its newest model response, if only that is known."""
    ago = max(0.0, (datetime.now(UTC) - answered_at).total_seconds()) if answered_at else 0.0
    usage, most = progress.usage, progress.most_turns
    token_count = usage.prompt_tokens + usage.completion_tokens
    return WorkingLine(
        instance_id=progress.instance_id,
        attempt=progress.attempt,
        href=unit_url(run, progress.instance_id, progress.attempt),
        phase=PHASES[progress.phase],
        since=duration(phase_seconds(progress)),
        turns=f"{progress.turn:,} of {most:,}" if most and progress.turn else f"{progress.turn or ''}",
        tokens=tokens(token_count) if token_count else "",
        cost="" if usage.cost_usd is None else money(usage.cost_usd),
        action=make_visible(progress.action),
        answered=f"{duration(ago)} ago" if answered_at else "",
    )
