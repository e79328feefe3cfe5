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

ROWS = 20
"""Maximum number of shards shown at a time; running ones come first."""
REASONS = 3
"""Maximum number of wait reasons shown."""
NAMES = 3
"""Maximum number of running units named."""
COLOURS = {"resolved": "green", "ended earlier": "dim", "graded": "dim"}
PHASES: dict[str, str] = {Phase.SUCCEEDED: "green", Phase.FAILED: "yellow", Phase.ERROR: "red", Phase.RUNNING: "cyan"}


def render_screen(
    run_id: str, run: RunStatus, shards: list[ShardView], away: str, at_work: Iterable[UnitProgress] = ()
) -> Group:
    """Return the live screen. ``away``: time since which the API does not answer, or ""."""
    head = Text(run_id, style="bold").append(f"  {run.stage}", style="cyan")
    head.append(f"  {run.planned}" if run.planned else "", style="dim")
    if run.stopping:
        head.append("  stopping", style="yellow")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("shard", "phase", "done", "running", "retries", "outcomes", "at work"):
        table.add_column(column, justify="right" if column in ("done", "running", "retries") else "left")
    busy = sorted(shards, key=lambda each: (each.has_ended, each.number))
    for each in busy[:ROWS]:
        table.add_row(*_row(each))
    parts: list[Text | Table] = [head, *([Text(run.canary, style=_canary_style(run))] if run.canary else []), table]
    if len(busy) > ROWS:
        parts.append(Text(f"and {len(busy) - ROWS} more shards", style="dim"))
    parts.append(Text("all: ").append_text(_outcomes(*count_outcomes(shards))))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in progress_lines(at_work)]
    parts += [Text(reason, style="yellow") for reason in describe_waits(run, shards)]
    if away:
        parts.append(Text(f"API away since {away}; what is shown is from then", style="red"))
    return Group(*parts)


def _canary_style(run: RunStatus) -> str:
    return "red" if "not to be believed" in run.canary else "dim"


def status_line(run: RunStatus, shards: list[ShardView]) -> str:
    """Return the whole state in one line, for a log."""
    outcomes, failures = count_outcomes(shards)
    done_units, all_of_them = outcomes.total() + failures.total(), sum(each.total or 0 for each in shards)
    ended_shards = sum(each.has_ended for each in shards)
    parts = [
        run.stage + (" (stopping)" if run.stopping else ""),
        f"shards {ended_shards}/{len(shards)}" if shards else "",
        f"units {done_units}/{all_of_them}" if all_of_them else "",
        f"running {running}" if (running := sum(len(each.running) for each in shards)) else "",
        _outcomes(outcomes, failures).plain if done_units else "",
        f"retries {retries}" if (retries := sum(each.retries for each in shards)) else "",
        "; ".join(describe_waits(run, shards)),
        run.canary.rstrip("."),
    ]
    return ", ".join(part for part in parts if part)


def progress_lines(at_work: Iterable[UnitProgress]) -> list[str]:
    """Return a line for each unit whose progress is known."""
    now = datetime.now(UTC)
    named = [
        (make_visible(unit_name(each.instance_id, each.attempt)), describe_progress(each, now)) for each in at_work
    ]
    width = max((len(name) for name, _ in named), default=0)
    return [f"  {name:<{width}}  {words}" for name, words in named]


def describe_waits(run: RunStatus, shards: Iterable[ShardView]) -> list[str]:
    """Return the most frequent wait reasons: those of the run itself first, then those of its shards' pods."""
    below: Counter[str] = Counter()
    for each in shards:
        below += each.waits
    counts = (run.waits.most_common() + below.most_common())[:REASONS]
    return [f"{number} x {why}" if number > 1 else why for why, number in counts]


def count_outcomes(shards: Iterable[ShardView]) -> tuple[Counter[str], Counter[str]]:
    """Return the number of units by verdict, and by failure class."""
    outcomes, failures = Counter[str](), Counter[str]()
    for each in shards:
        outcomes += each.outcomes
        failures += each.failures
    return outcomes, failures


def _row(shard: ShardView) -> tuple[Text | str, ...]:
    names = ", ".join(shard.running[:NAMES])
    more = len(shard.running) - NAMES
    return (
        shard.number,
        Text(shard.phase, style=PHASES.get(shard.phase, "dim")),
        f"{shard.done_units}/{'?' if shard.total is None else shard.total}",
        str(len(shard.running) or ""),
        str(shard.retries or ""),
        _outcomes(shard.outcomes, shard.failures),
        Text(names + (f" and {more} more" if more > 0 else ""), style="dim", overflow="ellipsis", no_wrap=True),
    )


def _outcomes(outcomes: Counter[str], failures: Counter[str]) -> Text:
    text = Text()
    for counts, style in ((outcomes, "yellow"), (failures, "red")):
        for name, number in counts.most_common():
            text.append(", " if text.plain else "").append(
                f"{number} {name.replace('_', ' ')}", style=COLOURS.get(name, style)
            )
    return text if text.plain else Text("nothing has ended yet", style="dim")
