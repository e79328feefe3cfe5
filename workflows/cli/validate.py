"""A validation at a terminal: the reference patches several times, untouched repositories once, what that says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.ids import RUN_ID_RULE, is_run_id
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.contracts.validation import GOLD, IDLE, Validation, part_of, validation_key
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.reports.validation.flips import LEAST_CHANCE, count_needed_runs, find_flip_bound
from swe_argo.steps.reports.validation.write import page_key
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.api.request import make_name
from swe_argo.workflows.cli import session, spec_sources
from swe_argo.workflows.terminal.run_end import EXIT_FAILED


def read_spec(dataset: str, flags: dict[str, Any], sets: list[str]) -> RunSpec:
    """The spec that its runs share, ``run_id`` the validation's own name. Raises ConfigError."""
    spec = spec_sources.read_request(None, {**flags, "dataset": dataset}, sets).spec
    name = spec.run_id if flags.get("run_id") else make_name("validate", dataset, 58)
    if name is None or not is_run_id(part_of(name, GOLD)):
        raise ConfigError(f"{name!r} is no name of a validation: .{GOLD} behind it, {RUN_ID_RULE}", field="run_id")
    return spec.model_copy(update={"run_id": name})


def runs_of(spec: RunSpec, gold_runs: int) -> dict[str, RunSpec]:
    """The two runs that a validation is made of."""
    # The first gold run validates the twin tests of each instance too, and says what they can confirm.
    grading = spec.grading.model_copy(update={"confirm": "always"})
    select = spec.select.model_copy(update={"skip_not_gradeable": True})
    common: Mapping[str, Any] = {"llm": LlmSpec(), "max_cost_usd": None, "grading": grading, "select": select}
    attempts = {GOLD: gold_runs, IDLE: 1}
    return {
        part: spec.model_copy(
            update={
                **common,
                "run_id": part_of(spec.run_id or "", part),
                "agent": AgentSpec(name=part),
                "attempts": attempts[part],
            }
        )
        for part in (GOLD, IDLE)
    }


def read_chance(text: str) -> float:
    """Read ``5%`` or ``0.05``. Raises ConfigError unless it is a chance that gold runs can bound."""
    try:
        chance = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        chance = 0
    if not LEAST_CHANCE <= chance < 1:
        raise ConfigError(f"{text!r} is not a chance from {LEAST_CHANCE:.1%} to 99%", field="--until-confident")
    return chance


def validate(spec: RunSpec, gold_runs: int, console: Console, again: str, chance: float | None = None) -> int:
    """Run both, one after the other, and print the validation. The same name again does only what is missing.

    Args:
        spec: What both runs share.
        gold_runs: Times that each reference patch is graded; with ``chance`` the most.
        console: Where progress and the validation are printed.
        again: The command line that resumes.
        chance: Grade the reference patches until the upper 95 % bound on the chance of a flip is at most this.

    Returns:
        The exit code: 0: every instance is known; 3: some are not; otherwise as ``session.run``.

    Raises:
        ConfigError, InfraError: As ``session.run`` does.
    """
    runs = gold_runs if chance is None else min(gold_runs, count_needed_runs(chance))
    while True:
        for run in runs_of(spec, runs).values():
            code = session.run(run, console, again)
            if code in (session.EXIT_INTERRUPTED, EXIT_FAILED):
                return code
        validation = print_validation(open_store(spec.store), spec.run_id or "", console)
        bound = find_flip_bound(validation)
        if chance is None or bound is None or bound.chance <= chance:
            break
        needed = count_needed_runs(chance, bound.flips)
        if needed > gold_runs:
            print_line(
                console, f"not confident: {chance:.1%} takes {needed} gold runs after {count(bound.flips, 'flip')}"
            )
        if not runs < needed <= gold_runs:
            break
        runs = needed
    if not validation.complete:
        print_line(console, f"to go on: {again}")
    return EXIT_OK if validation.complete else EXIT_INCOMPLETE


def print_validation(store: Store, name: str, console: Console) -> Validation:
    """Print the counts, the chance of a flip that is left, and the page's place. Raises ConfigError, InfraError."""
    dataset = record_of(store, RunFile, part_of(name, GOLD)).dataset.name
    validation = Validation.from_bytes(store.get(validation_key(dataset, name)))
    place = store.locate(page_key(validation))
    if bound := find_flip_bound(validation):
        print_line(console, bound.sentence)
    print_line(console, f"{name}: {validation.word}; page: {place}")
    return validation


def print_line(console: Console, text: str) -> None:
    """Print text as it stands."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)
