"""The runs of a store, a line each."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from steps.contracts.agent_spec import agent_of
from steps.errors import ConfigError
from steps.reports.text.visible import make_visible
from steps.store import Store
from steps.store.runs import store_flag
from workflows.api.run import Run
from workflows.api.store import RunStore
from workflows.terminal.columns import columns


def print_runs(store: Store, console: Console) -> None:
    """A line a run, newest last."""
    runs = RunStore(store).runs()
    if not runs:
        message = f"{store.url} holds no run yet; begin one with: swe-argo run{store_flag(store)}"
        console.print(Text(message), soft_wrap=True)
        return
    rows = []
    for run in runs:
        begin, *about = _about(run)
        resolved, missing = _score(run)
        rows.append([begin, resolved, run.run_id, *about, missing])
    title, *lines = columns(
        [["begun (UTC)", "resolved", "run", "agent and model", "dataset"], *sorted(rows)], right=(1,)
    )
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _about(run: Run) -> tuple[str, str, str]:
    try:
        file = run.file
    except ConfigError:  # of another version, or broken: the others are listed all the same
        return "?", "run.json cannot be read", ""
    agent, model = agent_of(file.spec.agent).name, make_visible(file.model)
    who = agent if model == agent else f"{agent}, {model}"
    return file.created_at[:16].replace("T", " "), who, make_visible(file.dataset.name)


def _score(run: Run) -> tuple[str, str]:
    if not run.has_report:
        return "no report", ""
    try:
        summary = run.summary
    except ConfigError:
        return "unreadable", ""
    rate, missing = summary.headline, len(summary.without_verdict)
    return f"{rate.resolved}/{rate.total}", f"{missing:,} without a verdict" if missing else ""
