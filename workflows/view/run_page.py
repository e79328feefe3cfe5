"""Page of a run: the sections of its report, the running units, and a table of all units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from swe_argo.steps.contracts.unit_progress import UnitProgress
from swe_argo.steps.reports.figures.unit_row import UnitRow, cells_in
from swe_argo.steps.reports.formatting import count, duration, make_visible, money, tokens, unit_name, utc
from swe_argo.steps.reports.labels import PHASES, STANDINGS, STOPS, phase_seconds, stop_phrase
from swe_argo.steps.reports.page.report_page import report_sections
from swe_argo.steps.reports.stored_run import Standing
from swe_argo.workflows.local.recovery import find_units_at_work
from swe_argo.workflows.view.recorded_conversations import RUNNING_WINDOW_S
from swe_argo.workflows.view.run_states import RunState
from swe_argo.workflows.view.tables import (
    Column,
    Filter,
    read_page,
    read_state,
    report_url,
    run_url,
    show_table,
    unit_url,
)

BARS = 2000
"""Maximum number of bars per page; tries are in order of their start."""
PAGE = "tries"
"""Query parameter for the page number."""
HEIGHT, LEAST, MOST = 480, 3, 14
"""Pixels: height of all lanes together, minimum and maximum height of one lane."""


@dataclass(frozen=True, slots=True)
class Try:
    """A try to draw; times are in seconds since the epoch."""

    began: float
    ended: float
    standing: str
    failed: bool
    href: str
    title: str

    @property
    def tone(self) -> str:
        """The CSS class of the bar."""
        return STANDINGS[Standing.FAILED if self.failed else self.standing].tone


def draw_timeline(
    run: str, rows: Sequence[UnitRow], working: Iterable[UnitProgress], query: QueryParams, now: datetime
) -> dict[str, Any] | None:
    """Return the timeline, or None without tries; with units ``working`` at ``now``, the default page is the last.

    ``untold`` is the number of units whose records lack the times of their tries.
    """
    running = [_running(run, progress, now.timestamp()) for progress in working]
    tries = sorted([item for row in rows for item in _tries(run, row)] + running, key=lambda item: item.began)
    untold = sum(bool(row.seconds) and all(item["failure_class"] for item in row.tries) for row in rows)
    if not tries and not untold:
        return None
    pages = max(1, -(-len(tries) // BARS))
    page = min(max(1, read_page(query.get(PAGE, ""), default=pages if running else 1)), pages)
    visible = tries[(page - 1) * BARS : page * BARS]
    places, lanes = pack(visible)
    lane = max(LEAST, min(MOST, HEIGHT // max(1, lanes)))
    first, last = min((item.began for item in visible), default=0.0), max((item.ended for item in visible), default=0.0)
    share = 100 / max(last - first, 1e-3)
    standings = {item.standing for item in visible if not item.failed}
    names = {name: label.name for name, label in STANDINGS.items()} | {Standing.NOT_RUN: "No verdict yet"}

    def address(number: int) -> str:
        return f"{run_url(run)}?{urlencode({**query, PAGE: number})}#h-timeline" if 1 <= number <= pages else ""

    return {
        "bars": [
            {
                "x": round(share * (item.began - first), 3),
                "width": round(share * (item.ended - item.began), 3),
                "y": place * lane,
                "unit_try": item,
            }
            for item, place in zip(visible, places, strict=True)
        ],
        "lanes": lanes,
        "lane": lane,
        "begin": _moment(first),
        "end": _moment(last),
        "took": duration(last - first),
        "legend": [(label.tone, names[name]) for name, label in STANDINGS.items() if name in standings],
        "failed": sum(item.failed for item in visible),
        "first": (page - 1) * BARS + 1,
        "total": len(tries),
        "before": address(page - 1),
        "after": address(page + 1),
        "untold": untold,
    }


def pack(tries: Sequence[Try]) -> tuple[list[int], int]:
    """Assign each try, sorted by start, the first free lane; return (lane of each try, number of lanes)."""
    places: list[int] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for item in tries:
        while busy and busy[0][0] <= item.began:
            heappush(free, heappop(busy)[1])
        places.append(heappop(free) if free else len(busy))
        heappush(busy, (item.ended, places[-1]))
    return places, max(places, default=-1) + 1


def _tries(run: str, row: UnitRow) -> list[Try]:
    href, tries = unit_url(run, row.instance_id, row.attempt), []
    for item in row.tries:
        try:
            began, ended = (_seconds(item[name] or "") for name in ("began_at", "ended_at"))
        except ValueError:
            continue
        ended = max(began, ended)  # a clock may have been set back
        result = f"failed: {item['failure_class']}" if item["failure_class"] else f"unit: {row.label.short}"
        words = f"{item['step']} {result}, {_moment(began)}, {duration(ended - began)}"
        title = make_visible(f"{unit_name(row.instance_id, row.attempt)}, {words}")
        tries.append(Try(began, ended, row.standing, bool(item["failure_class"]), href, title))
    return tries


def _running(run: str, progress: UnitProgress, ended: float) -> Try:
    """Return a running try; it starts with its current phase, because its actual start is unknown."""
    began, unit = min(ended, _seconds(progress.since)), (progress.instance_id, progress.attempt)
    words = f"{progress.step} running: {PHASES[progress.phase]}, {duration(ended - began)}"
    title = make_visible(f"{unit_name(*unit)}, {words}")
    return Try(began, ended, Standing.NOT_RUN, failed=False, href=unit_url(run, *unit), title=title)


def _seconds(moment: str) -> float:
    read = datetime.fromisoformat(moment)
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _moment(seconds: float) -> str:
    return utc(datetime.fromtimestamp(seconds, UTC).isoformat(), seconds=True)


UNIT_COLUMNS: tuple[Column[UnitRow], ...] = (
    Column("instance", "Instance", lambda row: (row.instance_id.lower(), row.attempt)),
    Column("attempt", "Attempt", lambda row: row.attempt, "n"),
    Column("verdict", "Verdict", lambda row: [*STANDINGS].index(row.standing), "v"),
)
UNIT_FILTERS: tuple[Filter[UnitRow], ...] = (
    Filter("outcome", "Outcome", lambda row: row.standing.value),
    Filter("stop", "Stop reason", lambda row: make_visible(row.stop_reason or "")),
    Filter("repo", "Repository", lambda row: make_visible(row.repo)),
    Filter("attempt", "Attempt", lambda row: str(row.attempt)),
    Filter("suspect", "Suspect", lambda row: "yes" if row.suspect else "no"),
    Filter("general", "General", lambda row: {None: "", True: "yes", False: "no"}[row.general]),
    Filter("unconfirmed", "Unconfirmed", lambda row: "yes" if row.integrity == "unconfirmed" else "no"),
)
NAMES = {name: label.name for name, label in STANDINGS.items()} | {name: stop.name for name, stop in STOPS.items()}
"""Display names of the filters' choices."""


def run_context(state: RunState, query: QueryParams) -> dict[str, Any]:
    """Return the variables of the page's template."""
    at_work = find_work(state)

    def href(row: UnitRow) -> str:
        return unit_url(state.run_id, row.instance_id, row.attempt)

    return {
        **report_sections(state.summary, state.rows, href, state.compared),
        "filtered": run_url(state.run_id),
        "beside_report": report_url(state.run_id, "") if state.reported else None,
        **units_context(state, query),
        "working": [working_line(state.run_id, progress, answered_at) for progress, answered_at in at_work],
        "timeline": draw_timeline(state.run_id, state.rows, [unit for unit, _ in at_work], query, datetime.now(UTC)),
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
    cells = {cell.name: cell for cell in cells_in("viewer")}
    columns = [column for column in UNIT_COLUMNS if many or column.name != "attempt"]
    columns += [
        Column(name, cell.title, cell.value, f"n more-wide{' roomy' * cell.is_roomy}", cell.meaning, optional=True)
        for name, cell in cells.items()
    ]
    table_state = read_state(query, columns, UNIT_FILTERS)
    return {
        "state": state,
        "table": show_table(state.rows, table_state, columns, UNIT_FILTERS, _search_text),
        "many": many,
        "names": NAMES,
        "cells": cells,
        "note": _note,
    }


def _search_text(row: UnitRow) -> str:
    texts = (row.instance_id, row.title, row.repo, row.failure_class, row.failure_reason, row.standing, row.stop_reason)
    return " ".join(text or "" for text in texts).lower()


def _note(row: UnitRow) -> str:
    note = row.failure_class or (count(row.failing_tests, "failing test") if row.failing_tests else "")
    stop = stop_phrase(row.stop_reason) if row.stop_reason not in (None, "finished") else ""
    return make_visible("; ".join(filter(None, [note, stop])))


def working_line(run: str, progress: UnitProgress, answered_at: datetime | None = None) -> dict[str, Any]:
    """Return the template's values about a running unit.

    ``answered_at``: time of its newest model response, if only that is known; its age is ``answered``.
    """
    ago = max(0.0, (datetime.now(UTC) - answered_at).total_seconds()) if answered_at else 0.0
    usage, most = progress.usage, progress.most_turns
    token_count = usage.prompt_tokens + usage.completion_tokens
    return {
        "instance_id": progress.instance_id,
        "attempt": progress.attempt,
        "href": unit_url(run, progress.instance_id, progress.attempt),
        "phase": PHASES[progress.phase],
        "since": duration(phase_seconds(progress)),
        "turns": f"{progress.turn:,} of {most:,}" if most and progress.turn else f"{progress.turn or ''}",
        "tokens": tokens(token_count) if token_count else "",
        "cost": "" if usage.cost_usd is None else money(usage.cost_usd),
        "action": make_visible(progress.action),
        "answered": f"{duration(ago)} ago" if answered_at else "",
    }
