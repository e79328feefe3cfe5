"""A training at a terminal: its steps as lines, a clean end, and how to go on."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.train_spec import TrainSpec
from swe_argo.steps.contracts.training import StepFigures, TrainFile
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_INFRA, EXIT_OK, ConfigError, StepError, extra_hint
from swe_argo.steps.reports.canary import describe_canary
from swe_argo.steps.reports.stored_run import CanaryResult
from swe_argo.steps.reports.text.formatting import count, duration, percent, tokens
from swe_argo.steps.reports.training.stored_training import read_training
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from swe_argo.steps.training.train_spec_parsing import of_train_file, read_train_spec
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.cli.session import EXIT_INTERRUPTED, ending
from swe_argo.workflows.local.runner import Watch
from swe_argo.workflows.local.training import Training
from swe_argo.workflows.local.whole_steps import Show
from swe_argo.workflows.terminal.activity import ActivityLine
from swe_argo.workflows.terminal.progress import Progress
from swe_argo.workflows.terminal.run_end import EXIT_FAILED
from swe_argo.workflows.terminal.training_lines import print_training


def read_spec(file: Path | None, sets: list[str], name: str | None, steps: int | None, store: str | None) -> TrainSpec:
    """The spec of a command line; flags win over the file. Raises ConfigError naming file, field and the way out."""
    flags = {"name": name, "steps": steps, "run.store": store}
    stated = [f"{field}={json.dumps(value)}" for field, value in flags.items() if value is not None]
    return read_train_spec([of_train_file(file)] if file else [], [*sets, *stated], str(file) if file else "flags")


def check_machine(spec: TrainSpec) -> None:
    """Raises ConfigError for what the training needs on this machine and lacks."""
    needed = ("tinker", "tokenizers", "huggingface_hub", "uvicorn")
    if any(importlib.util.find_spec(module) is None for module in needed):
        raise ConfigError(f"training needs the packages of an extra: {extra_hint('tinker')}", field="train")
    if settings().tinker_api_key is None:
        raise ConfigError("is not set: the key of the Tinker account to train with", field="TINKER_API_KEY")
    if spec.proxy_url is None:
        from swe_argo.steps.serving.chat_template import ChatTemplate
        from swe_argo.steps.serving.tokenizer_files import find_tokenizer

        ChatTemplate(find_tokenizer(spec.tokenizer or spec.base_model))


def train(spec: TrainSpec, console: Console, again: str) -> int:
    """Train on this machine; the same spec again goes on. Returns the exit code.

    ``again``: the command that goes on, told when it ends early. 0: all steps are learnt. 3: a limit of a run has ended
    it. 4: that was a failure. 130: stopped by Ctrl-C. Raises StepError, where something can be gone on with with the
    command as its note.
    """
    watching = _TrainingLines(spec, console)
    watching.training = Training(spec, watching)
    try:
        with ending(watching.stop):
            end = watching.training.run()
    except StepError as error:
        if watching.is_interrupted:  # Ctrl-C reaches what plans the training, too
            _say(console, f"stopped; to go on: {again}")
            return EXIT_INTERRUPTED
        if error.exit_code == EXIT_INFRA:
            error.add_note(f"to go on: {again}")
        raise
    store = open_store(spec.run.store)
    print_training(store, read_training(store, spec.name), console)
    if end.limit:
        _say(console, end.limit.reason)
    if end.learned < spec.steps:
        _say(console, f"{'stopped; ' if end.stopped else ''}to go on: {again}")
    if end.stopped:
        return EXIT_INTERRUPTED
    if end.limit and end.limit.failed:
        return EXIT_FAILED
    return EXIT_OK if end.learned >= spec.steps else EXIT_INCOMPLETE


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


class _TrainingLines:
    """Prints what a training tells; of its runs their units alone."""

    training: Training

    def __init__(self, spec: TrainSpec, console: Console) -> None:
        self._spec, self._console = spec, console
        self._notes: set[str] = set()
        self.is_interrupted = False

    @contextmanager
    def activity(self, title: str) -> Iterator[Show]:
        with ActivityLine(self._console, title) as doing:
            yield doing.now

    def note(self, text: str) -> None:
        """Once: each run of a training says the same."""
        if text not in self._notes:
            self._notes.add(text)
            _say(self._console, f"note: {text}", "dim")

    def begin(self, training: TrainFile, learned: int) -> None:
        held, left = len(training.held_out), len(training.left_out)
        words = [f"{count(len(training.pool), 'instance')} to train on"]
        words += [f"{held} held out"] if held else []
        words += [f"{left} left out"] if left else []
        words += [f"{learned} of {self._spec.steps} steps learnt before"] if learned else []
        _say(self._console, f"{training.name}: {', '.join(words)}")

    def of_run(self, spec: RunSpec) -> _RunLines:
        return _RunLines(self, self._console, spec.run_id or "")

    def learning(self, step: int) -> None:
        if self._console.is_terminal:
            _say(self._console, f"step {step}: learning", "dim")

    def learned(self, figures: StepFigures, seconds: float) -> None:
        parts = [f"reward {figures.reward_mean:.3f}" if figures.reward_mean is not None else "no reward"]
        parts += [f"resolved {percent(figures.resolved_share)} %"] if figures.resolved_share is not None else []
        parts += [f"{figures.learnt} of {count(figures.rollouts, 'rollout')} learnt from"]
        parts += [f"{figures.infra_failures} without a verdict"] if figures.infra_failures else []
        parts += [f"lag {figures.lag}"] if figures.lag else []
        parts += [f"{tokens(sum(figures.tokens.get(kind, 0) for kind in ('prompt', 'sampled')))} tokens"]
        _say(self._console, f"step {figures.step}/{self._spec.steps}: {', '.join(parts)}, {duration(seconds)}")

    def measured(self, step: int, run: str) -> None:
        summary = Run(open_store(self._spec.run.store), run).summary
        rate = summary.headline
        score = summary.why_no_score or f"{rate.resolved} of {rate.total} resolved"
        _say(self._console, f"held out after step {step}: {score} ({run})")

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-C, and what is like it."""
        again, self.is_interrupted = self.is_interrupted, True
        if not again:
            line = "stopping: rollouts are put away, a step that is being learnt is finished (once more to drop all)"
            _say(self._console, line, "yellow")
        # In a thread: the handler may have interrupted whoever holds a lock.
        threading.Thread(target=self.training.stop, kwargs={"at_once": again}, daemon=True).start()


class _RunLines:
    """Prints what a person wants to know of one run of many."""

    def __init__(self, above: _TrainingLines, console: Console, run_id: str) -> None:
        self._above, self._console, self._run = above, console, run_id

    @contextmanager
    def activity(self, title: str) -> Iterator[Show]:
        with ActivityLine(self._console, title) as doing:
            yield doing.now

    def note(self, text: str) -> None:
        self._above.note(text)

    def lose(self) -> None:
        self._above.note(f"another runner has taken over {self._run}: stopping")

    def begin(self, plan: Plan) -> None:
        _say(self._console, f"{plan.run_id}: {plan.word}", "dim")

    @contextmanager
    def work(self, plan: Plan, *, canary: bool) -> Iterator[Watch]:
        if canary:
            _say(
                self._console, f"canary: {count(len(plan.units), 'reference patch', 'reference patches')} first", "dim"
            )
        with Progress(self._console, plan.units, plan.run_id) as progress:
            yield progress

    def judge_canary(self, result: CanaryResult) -> None:
        _say(self._console, describe_canary(result), "red" if result.failed else "dim")
