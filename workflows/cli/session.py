"""One run at a terminal: watch it, stop it cleanly, and say how it ended."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rich.console import Console

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.unit_progress import UnitProgress
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_INFRA, EXIT_OK, StepError
from swe_argo.steps.reports.canary import describe_canary
from swe_argo.steps.reports.stored_run import CanaryResult
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.local.at_work import find_units_at_work
from swe_argo.workflows.local.evaluation import Evaluation
from swe_argo.workflows.local.runner import Watch, worker_count
from swe_argo.workflows.local.whole_steps import Show
from swe_argo.workflows.terminal.activity import ActivityLine
from swe_argo.workflows.terminal.progress import Progress
from swe_argo.workflows.terminal.run_end import EXIT_FAILED, print_run_end
from swe_argo.workflows.terminal.unit_lines import describe_replays

EXIT_INTERRUPTED = 130


def run(
    spec: RunSpec, console: Console, again: str, env: Mapping[str, str] | None = None, first: str | None = None
) -> int:
    """Evaluate the spec on this machine; the same spec again does only what is missing. Returns the exit code.

    ``again``: the command that goes on with a run, told when it ends early; ``first``: where it was not planned yet, if
    that is another. ``env``: for the environment of the steps.
    0: every unit has a verdict. 3: some have none. 4: it ended as failed (fail_fast). 130: stopped by Ctrl-C. Raises
    StepError.
    An end by an exception that leaves something to do has the command that does it as its note.
    """
    watching = _TerminalObserver(spec, console)
    watching.evaluation = Evaluation(spec, watching, env)
    try:
        with ending(_interrupt):
            return _run(spec, console, again, watching)
    except KeyboardInterrupt:
        command = again if watching.is_planned else first or again
        console.print(f"stopped; to go on: {command}", highlight=False, soft_wrap=True, markup=False)
        raise
    except StepError as error:
        if error.exit_code == EXIT_INFRA and not hasattr(error, "__notes__"):
            error.add_note(f"to go on: {again if watching.is_planned else first or again}")
        raise


def _run(spec: RunSpec, console: Console, again: str, watching: _TerminalObserver) -> int:
    end = watching.evaluation.run()
    store = open_store(spec.store)
    summary = print_run_end(Run(store, end.plan.run_id), console)
    for line in describe_replays(store, end.plan) if agent_of(spec.agent).kind is AgentKind.REPLAY else ():
        console.print(line, soft_wrap=True)
    if end.limit and not summary.complete:
        unstarted = f"; {count(end.not_begun, 'unit')} not begun" if end.not_begun else ""
        console.print(f"{end.limit.reason}{unstarted}", highlight=False, soft_wrap=True, markup=False)
    if end.stopped or not summary.complete:
        more = shlex.join(end.limit.flags) if end.limit else ""
        word = "stopped; " if end.stopped else ""
        console.print(f"{word}to go on: {again} {more}".rstrip(), highlight=False, soft_wrap=True, markup=False)
    if end.stopped:
        return EXIT_INTERRUPTED
    if end.limit and end.limit.failed:
        return EXIT_FAILED
    return EXIT_OK if summary.complete else EXIT_INCOMPLETE


class _TerminalObserver:
    """Prints what a run tells."""

    evaluation: Evaluation

    def __init__(self, spec: RunSpec, console: Console) -> None:
        self._spec = spec
        self._console = console
        self._interrupted = False
        self.is_planned = False

    @contextmanager
    def activity(self, title: str) -> Iterator[Show]:
        with ActivityLine(self._console, title) as doing:
            yield doing.now

    def note(self, text: str) -> None:
        self._console.print(f"note: {text}", style="dim", highlight=False, soft_wrap=True, markup=False)

    def lose(self) -> None:
        self._console.print("another runner has taken over this run: stopping", style="yellow")

    def begin(self, plan: Plan) -> None:
        self.is_planned = True
        todo = len(plan.to_do)
        workers = min(worker_count(self._spec), max(todo, 1))
        self._console.print(
            f"{plan.run_id}: {plan.word}" + (f", {workers} at a time" if todo > 1 else "") + _bounds(self._spec, todo),
            highlight=False,
            soft_wrap=True,
        )

    @contextmanager
    def work(self, plan: Plan, *, canary: bool) -> Iterator[Watch]:
        if canary:
            patches = count(len(plan.units), "reference patch", "reference patches")
            self._console.print(f"canary: {patches} first", style="dim")
        run = record_of(open_store(self._spec.store), RunFile, plan.run_id)

        def look() -> list[UnitProgress]:
            return [each.progress for each in find_units_at_work(run)]

        with Progress(self._console, plan.units, plan.run_id, look) as progress, ending(self._stop):
            yield progress

    def judge_canary(self, result: CanaryResult) -> None:
        style = "red" if result.failed else "dim"
        self._console.print(describe_canary(result), style=style, highlight=False, soft_wrap=True, markup=False)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        again, self._interrupted = self._interrupted, True
        if not again:
            self._console.print("stopping: what runs is being put away (once more to drop it)", style="yellow")
        # In a thread: the handler may have interrupted whoever holds the runner's lock.
        threading.Thread(target=self.evaluation.stop, kwargs={"at_once": again}, daemon=True).start()


def _bounds(spec: RunSpec, todo: int) -> str:
    """What holds the calls of a model back, so that nobody takes waiting for hanging."""
    at_a_time, a_minute = spec.llm.concurrency, spec.llm.requests_per_minute
    words = [f"{at_a_time} at a time"] if at_a_time else []
    words += [f"{a_minute:g} a minute"] if a_minute else []
    asks = agent_of(spec.agent).asks_model
    return f", calls of the model {' and '.join(words)}" if todo and words and asks else ""


@contextmanager
def ending(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """What Ctrl-C does, a SIGTERM does, and a terminal that is closed, unless (nohup) that is not to end anything."""
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {n: signal.signal(n, handler) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
