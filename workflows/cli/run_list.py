"""The runs and the trainings of a store, a line each."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from steps.contracts.agent_spec import agent_of
from steps.contracts.record import key
from steps.contracts.training import Checkpoints
from steps.errors import ConfigError
from steps.reports.text.visible import make_visible
from steps.store import Store
from steps.store.runs import store_flag
from steps.store.trainings import training_of, training_of_run, trainings_of
from workflows.api.run import Run
from workflows.api.store import RunStore
from workflows.terminal.columns import columns


def print_runs(store: Store, console: Console, *, whole: bool = False) -> None:
    """A line a run, newest last, then one a training; ``whole``: the runs of their steps are not left out."""
    trainings = trainings_of(store)
    runs = RunStore(store).runs(lambda name: whole or training_of_run(name) not in trainings)
    if runs:
        _print_table(["begun (UTC)", "resolved", "run", "agent and model", "dataset"], map(_run, runs), console)
    if trainings:
        if runs:
            console.print()
        rows = [_training(store, name) for name in trainings]
        _print_table(["begun (UTC)", "learnt", "training", "base model", "dataset"], rows, console)
        if not whole:
            hint = f"the runs of their steps: swe-argo runs --all{store_flag(store)}"
            console.print(Text(hint, style="dim"), soft_wrap=True)
    if not runs and not trainings:
        message = f"{store.url} holds no run yet; begin one with: swe-argo run{store_flag(store)}"
        console.print(Text(message), soft_wrap=True)


def _print_table(titles: list[str], rows: Iterable[list[str]], console: Console) -> None:
    title, *lines = columns([titles, *sorted(rows)], right=(1,))
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _run(run: Run) -> list[str]:
    begin, *about = _about(run)
    resolved, missing = _score(run)
    return [begin, resolved, run.run_id, *about, missing]


def _training(store: Store, name: str) -> list[str]:
    try:
        file = training_of(store, name)
    except ConfigError:  # of another version, or broken
        return ["?", "?", name, "train.json cannot be read", ""]
    place = key(Checkpoints, name)
    learnt = len(store.get_many([place]).get(place, b"").splitlines())
    begin, model = file.created_at[:16].replace("T", " "), make_visible(file.spec.base_model)
    return [begin, f"{learnt:,}/{file.spec.steps:,}", name, model, make_visible(file.dataset.name)]


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
