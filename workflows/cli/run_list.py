"""The runs and the trainings of a store, a line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.text.visible import make_visible
from swe_argo.steps.store import Store
from swe_argo.steps.store.runs import store_flag
from swe_argo.steps.store.trainings import training_of, training_of_run, trainings_of
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.api.store import RunStore
from swe_argo.workflows.terminal.columns import columns


@dataclass(frozen=True)
class RunFilter:
    """Which runs are listed. Empty fields choose all; case does not matter."""

    words: tuple[str, ...] = ()
    dataset: str = ""
    agent: str = ""
    model: str = ""
    since: str = ""
    """A date, or the beginning of one, ISO 8601."""
    unfinished: bool = False
    last: int | None = None
    tags: tuple[str, ...] = ()
    """All of which a run has."""

    def takes(self, line: ListedRun) -> bool:
        """Whether a run is listed, but for ``last``."""
        text = " ".join((line.run_id, line.agent, line.model, line.dataset, line.begun[:10], *line.tags)).lower()
        tags = [tag.lower() for tag in line.tags]
        return (
            all(word.lower() in text for word in self.words)
            and self.dataset.lower() in line.dataset.lower()
            and self.agent.lower() in ("", line.agent.lower())
            and self.model.lower() in line.model.lower()
            and line.begun[: len(self.since)] >= self.since
            and not (self.unfinished and line.complete)
            and all(tag.lower() in tags for tag in self.tags)
        )

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out."""
        return self == RunFilter()


@dataclass(frozen=True)
class ListedRun:
    """What the list has of one run, as the store has it. ``begun``: ISO 8601, UTC; empty where it cannot be read."""

    run_id: str
    begun: str = ""
    agent: str = ""
    model: str = ""
    dataset: str = ""
    tags: tuple[str, ...] = ()
    problem: str = ""
    """Why there is no score."""
    resolved: int | None = None
    total: int | None = None
    without_verdict: int = 0

    @property
    def complete(self) -> bool:
        """Whether every unit has a verdict, and it is reported."""
        return self.total is not None and not self.without_verdict


EVERY = RunFilter()


def print_runs(store: Store, console: Console, chosen: RunFilter = EVERY, *, whole: bool = False) -> None:
    """A line a run, newest last, then one a training; ``whole``: the runs of their steps are not left out."""
    trainings = trainings_of(store) if chosen.is_all else []
    lines = _read_lines(store, chosen, whole=whole)
    if lines:
        tagged = any(line.tags for line in lines)
        titles = ["begun (UTC)", "resolved", "run", "agent and model", "dataset", *(["tags"] if tagged else [])]
        _print_table(titles, (_cells(line, tagged=tagged) for line in lines), console)
    if trainings:
        if lines:
            console.print()
        rows = sorted(_training(store, name) for name in trainings)
        _print_table(["begun (UTC)", "learnt", "training", "base model", "dataset"], rows, console)
        if not whole:
            hint = f"the runs of their steps: swe-argo runs --all{store_flag(store)}"
            console.print(Text(hint, style="dim"), soft_wrap=True)
    if not lines and not trainings:
        message = f"{store.url} holds no run yet; begin one with: swe-argo run{store_flag(store)}"
        if not chosen.is_all:
            message = f"no run of {store.url} is so; all: swe-argo runs{store_flag(store)}"
        console.print(Text(message), soft_wrap=True)


def print_runs_json(store: Store, chosen: RunFilter, *, whole: bool = False) -> None:
    """A JSON object a line; what is not known is null."""
    for line in _read_lines(store, chosen, whole=whole):
        row = {
            "run_id": line.run_id,
            "begun": line.begun or None,
            "agent": line.agent or None,
            "model": line.model or None,
            "dataset": line.dataset or None,
            "tags": line.tags if line.begun else None,
            "resolved": line.resolved,
            "total": line.total,
            "without_verdict": line.without_verdict if line.total is not None else None,
            "complete": line.complete,
            "problem": line.problem or None,
        }
        sys.stdout.write(json.dumps(row) + "\n")


def _read_lines(store: Store, chosen: RunFilter, *, whole: bool) -> list[ListedRun]:
    trainings = trainings_of(store)
    runs = RunStore(store).runs(lambda name: whole or training_of_run(name) not in trainings)
    lines = [
        line for line in sorted(map(_line, runs), key=lambda line: (line.begun, line.run_id)) if chosen.takes(line)
    ]
    return lines[-chosen.last :] if chosen.last else lines


def _print_table(titles: list[str], rows: Iterable[list[str]], console: Console) -> None:
    title, *lines = columns([titles, *rows], right=(1,))
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _cells(line: ListedRun, *, tagged: bool) -> list[str]:
    """``tagged``: with a column of tags."""
    who = line.agent if line.model == line.agent else f"{line.agent}, {make_visible(line.model)}"
    begun = line.begun[:16].replace("T", " ") or "?"
    score = line.problem or f"{line.resolved}/{line.total}"
    missing = f"{line.without_verdict:,} without a verdict" if line.without_verdict else ""
    if not line.begun:
        who, score = "run.json cannot be read", score or "?"
    tags = [",".join(line.tags)] if tagged else []
    return [begun, score, line.run_id, who, make_visible(line.dataset), *tags, missing]


def _training(store: Store, name: str) -> list[str]:
    try:
        file = training_of(store, name)
    except ConfigError:  # of another version, or broken
        return ["?", "?", name, "train.json cannot be read", ""]
    place = key(Checkpoints, name)
    learnt = len(store.get_many([place]).get(place, b"").splitlines())
    begin, model = file.created_at[:16].replace("T", " "), make_visible(file.spec.base_model)
    return [begin, f"{learnt:,}/{file.spec.steps:,}", name, model, make_visible(file.dataset.name)]


def _line(run: Run) -> ListedRun:
    try:
        file = run.file
        agent = agent_of(file.spec.agent).name
        line = ListedRun(run.run_id, file.created_at, agent, file.model, file.dataset.name, tuple(file.spec.tags))
    except ConfigError:  # of another version, or broken: the others are listed all the same
        line = ListedRun(run.run_id)
    if run.is_worked_on:
        return replace(line, problem="working")
    if not run.has_report:
        return replace(line, problem="no report")
    try:
        summary = run.summary
    except ConfigError:
        return replace(line, problem="unreadable")
    rate = summary.headline
    missing = len(summary.without_verdict)
    problem = "" if summary.valid else "no score"
    return replace(line, problem=problem, resolved=rate.resolved, total=rate.total, without_verdict=missing)
