"""Display of a run on the cluster: a table by shard on a terminal, otherwise lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from swe_argo.steps.contracts.unit_progress import UnitProgress
from swe_argo.steps.contracts.workflow_marks import Phase
from swe_argo.steps.reports.text.formatting import unit_name
from swe_argo.steps.reports.text.visible import make_visible
from swe_argo.steps.reports.unit.progress import describe_progress
from swe_argo.workflows.argo.run_status import RunStatus, ShardView

MAX_SHARDS = 20
"""Maximum number of shards shown at a time; running ones come first."""
MAX_REASONS = 3
"""Maximum number of wait reasons shown."""
MAX_NAMES = 3
"""Maximum number of running units named."""
COLOURS = {"resolved": "green", "ended earlier": "dim", "graded": "dim"}
PHASES: dict[str, str] = {Phase.SUCCEEDED: "green", Phase.FAILED: "yellow", Phase.ERROR: "red", Phase.RUNNING: "cyan"}


def render_screen(
    run_id: str, run: RunStatus, shards: list[ShardView], away: str, at_work: Iterable[UnitProgress] = ()
) -> Group:
    """Return the live screen. ``away``: the time since when the API has been unreachable, "" if it is reachable.

    ``at_work``: the progress of running units, one line each.
    """
    head = Text(run_id, style="bold").append(f"  {run.stage}", style="cyan")
    head.append(f"  {run.planned}" if run.planned else "", style="dim")
    if run.stopping:
        head.append("  stopping", style="yellow")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("shard", "phase", "done", "running", "retries", "outcomes", "at work"):
        table.add_column(column, justify="right" if column in ("done", "running", "retries") else "left")
    ordered = sorted(shards, key=lambda shard: (shard.has_ended, shard.number))
    for shard in ordered[:MAX_SHARDS]:
        table.add_row(*_row(shard))
    parts: list[Text | Table] = [head, *([Text(run.canary, style=_canary_style(run))] if run.canary else []), table]
    if len(ordered) > MAX_SHARDS:
        parts.append(Text(f"and {len(ordered) - MAX_SHARDS} more shards", style="dim"))
    parts.append(Text("all: ").append_text(_outcomes(*count_outcomes(shards))))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in progress_lines(at_work)]
    parts += [Text(reason, style="yellow") for reason in describe_waits(run, shards)]
    if away:
        parts.append(Text(f"API unreachable since {away}; this is the last known state", style="red"))
    return Group(*parts)


def _canary_style(run: RunStatus) -> str:
    return "red" if "cannot be trusted" in run.canary else "dim"


def status_line(run: RunStatus, shards: list[ShardView]) -> str:
    """Return the whole state in one line, for a log."""
    outcomes, failures = count_outcomes(shards)
    ended_units, total = outcomes.total() + failures.total(), sum(shard.total or 0 for shard in shards)
    ended_shards = sum(shard.has_ended for shard in shards)
    parts = [
        run.stage + (" (stopping)" if run.stopping else ""),
        f"shards {ended_shards}/{len(shards)}" if shards else "",
        f"units {ended_units}/{total}" if total else "",
        f"running {running}" if (running := sum(len(shard.running) for shard in shards)) else "",
        _outcomes(outcomes, failures).plain if ended_units else "",
        f"retries {retries}" if (retries := sum(shard.retries for shard in shards)) else "",
        "; ".join(describe_waits(run, shards)),
        run.canary.rstrip("."),
    ]
    return ", ".join(part for part in parts if part)


def progress_lines(at_work: Iterable[UnitProgress]) -> list[str]:
    """Return a line for each unit whose progress is known."""
    now = datetime.now(UTC)
    rows = [
        (make_visible(unit_name(progress.instance_id, progress.attempt)), describe_progress(progress, now))
        for progress in at_work
    ]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {description}" for name, description in rows]


def describe_waits(run: RunStatus, shards: Iterable[ShardView]) -> list[str]:
    """Return the most frequent wait reasons: those of the run itself first, then those of its shards' pods."""
    shard_waits: Counter[str] = Counter()
    for shard in shards:
        shard_waits += shard.waits
    counts = (run.waits.most_common() + shard_waits.most_common())[:MAX_REASONS]
    return [f"{number} x {reason}" if number > 1 else reason for reason, number in counts]


def count_outcomes(shards: Iterable[ShardView]) -> tuple[Counter[str], Counter[str]]:
    """Return the number of units by verdict, and by failure class."""
    outcomes, failures = Counter[str](), Counter[str]()
    for shard in shards:
        outcomes += shard.outcomes
        failures += shard.failures
    return outcomes, failures


def _row(shard: ShardView) -> tuple[Text | str, ...]:
    """Return the cells of a shard's row in the table."""
    names = ", ".join(shard.running[:MAX_NAMES])
    more = len(shard.running) - MAX_NAMES
    return (
        shard.number,
        Text(shard.phase, style=PHASES.get(shard.phase, "dim")),
        f"{shard.ended_units}/{'?' if shard.total is None else shard.total}",
        str(len(shard.running) or ""),
        str(shard.retries or ""),
        _outcomes(shard.outcomes, shard.failures),
        Text(names + (f" and {more} more" if more > 0 else ""), style="dim", overflow="ellipsis", no_wrap=True),
    )


def _outcomes(outcomes: Counter[str], failures: Counter[str]) -> Text:
    """Return the counts of outcomes and failure classes as coloured text."""
    text = Text()
    for counts, style in ((outcomes, "yellow"), (failures, "red")):
        for name, number in counts.most_common():
            text.append(", " if text.plain else "").append(
                f"{number} {name.replace('_', ' ')}", style=COLOURS.get(name, style)
            )
    return text if text.plain else Text("no unit has ended yet", style="dim")
