"""Caveats of a run: the facts to know before believing the headline."""

from __future__ import annotations

from collections import Counter

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import OFFICIAL_TIMEOUT_S
from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.reports.canary import describe_canary
from swe_argo.steps.reports.figures.conditions import describe_conditions, run_conditions, saw_hints
from swe_argo.steps.reports.figures.confirmations import (
    confirmation_figures,
    count_words,
    describe_sites,
    is_general,
    shared_reason,
    unconfirmed_reasons,
)
from swe_argo.steps.reports.figures.flips import doubt_flips
from swe_argo.steps.reports.labels import ADVICE, STANDINGS
from swe_argo.steps.reports.no_steps import doubt_no_steps
from swe_argo.steps.reports.stored_run import NO_VERDICT, Standing, StoredRun, StoredUnit, add_usage
from swe_argo.steps.reports.text.formatting import count, listing, money, percent
from swe_argo.steps.reports.text.visible import cut_line

MOST_WITHOUT_VERDICT = 0.1
"""Maximum share of units without a verdict in a valid run."""
FEWEST_ANSWERS = 10
"""Minimum number of model answers for a judgement about them."""
SAID_WIDTH = 100


def find_caveats(run: StoredRun) -> list[str]:
    """Return the caveats as sentences, worst first; empty if there are none."""
    if not run.units:
        return ["Nothing was planned: there is nothing to report."]
    return [
        *_early_ends(run),
        *_canary(run),
        *_invalid(run),
        *_redone(run.units),
        *_useless_answers(run),
        *doubt_no_steps(run.units),
        *_empty_patches(run),
        *_no_verdicts(run),
        *_integrity(run.units),
        *_unconfirmed(run.units),
        *_not_general(run.units),
        *doubt_flips(run.units),
        *_leaks(run),
        *_departures(run),
        *_unreadable(run),
    ]


def agent_remarks(run: StoredRun) -> list[str]:
    """Return remarks about the agent for every page of one of its units: how the model was asked, what it could see."""
    return [*describe_conditions(run_conditions(run)), *_leaks(run)]


def is_valid(run: StoredRun) -> bool:
    """Return whether enough units have a verdict that the score describes the agent and not the endpoint."""
    return not early_ends(run) and _without_verdict(run) <= MOST_WITHOUT_VERDICT * len(run.units)


def early_ends(run: StoredRun) -> int:
    """Return the units whose conversation the endpoint ended at its first or second turn, if most were."""
    return sum(unit.retracted is not None and unit.retracted.failure_class is FailureClass.MODEL for unit in run.units)


def _early_ends(run: StoredRun) -> list[str]:
    if not (early := early_ends(run)):
        return []
    units = [unit for unit in run.units if unit.retracted is not None]
    why = next(unit.retracted.detail for unit in units if unit.retracted)
    quoted = f'; it said: "{cut_line(why, SAID_WIDTH)}"' if why else ""
    solved = sum(unit.solve is not None for unit in run.units)
    return [
        f"This run is invalid: in {early:,} of {count(solved, 'solved unit')} the endpoint refused or filtered the "
        f"conversation at turn 1 or 2{quoted}. These units have no verdict; the same run again tries them."
    ]


def _canary(run: StoredRun) -> list[str]:
    canary = run.canary
    return [describe_canary(canary)] if canary and (canary.failed or canary.without_verdict) else []


def _without_verdict(run: StoredRun) -> int:
    return sum(unit.standing in NO_VERDICT for unit in run.units)


def _invalid(run: StoredRun) -> list[str]:
    is_stopped = all(unit.failure is None for unit in run.units)
    if is_valid(run) or early_ends(run) or is_stopped:
        return []
    missing, all_ = _without_verdict(run), len(run.units)
    return [
        f"This run is invalid: {missing:,} of {count(all_, 'unit')} ({percent(missing / all_)} %) without a verdict, "
        f"more than {percent(MOST_WITHOUT_VERDICT)} %. The same run again does what is missing."
    ]


def _redone(units: list[StoredUnit]) -> list[str]:
    """Return a sentence about units run again because of their outcome: to repeat only failures biases the score."""
    redone = [unit for unit in units if unit.redone]
    if not redone:
        return []
    before = Counter(unit.redone[0].outcome for unit in redone)
    counts = listing([f"{number:,} {STANDINGS[outcome].short}" for outcome, number in before.most_common()])
    gained = sum(
        unit.standing is Standing.RESOLVED and all(one.outcome is not Outcome.RESOLVED for one in unit.redone)
        for unit in redone
    )
    were = "was" if len(redone) == 1 else "were"
    return [
        f"{count(len(redone), 'unit')} {were} done again by --redo ({counts} before); {gained:,} of them resolved only "
        "then, so the score is not that of one try each. The earlier verdicts are among their tries."
    ]


def _useless_answers(run: StoredRun) -> list[str]:
    """Return a sentence if the agent could use fewer than half of the answers: then they measure the set-up."""
    answers = sum(unit.model_answers for unit in run.units)
    useless = sum(unit.useless_answers for unit in run.units)
    if answers < FEWEST_ANSWERS or 2 * useless <= answers:
        return []
    excerpt = next((unit.useless_answer for unit in run.units if unit.useless_answer), "")
    expected = "patch" if agent_of(run.run.spec.agent).takes_prompt_style else "call that could be made"
    how = f"held no {expected}" if excerpt else "held nothing at all"
    quoted = f'; one began: "{cut_line(excerpt, SAID_WIDTH)}"' if excerpt else "; the server sent no text"
    return [f"{useless:,} of the model's {answers:,} answers {how}{quoted}. {_way_out(run)}"]


def _empty_patches(run: StoredRun) -> list[str]:
    """Return a sentence if at least half of the patches in a predictions file are empty."""
    if agent_of(run.run.spec.agent).kind is not AgentKind.GIVEN:
        return []
    given = [unit.standing for unit in run.units if unit.standing is not Standing.NO_PREDICTION]
    empty = given.count(Standing.EMPTY_PATCH)
    if not empty or 2 * empty < len(given):
        return []
    patches = count(len(given), "given patch is", "given patches are")
    return [f"{empty:,} of {patches} empty: check that their source holds the agent's patches."]


def _way_out(run: StoredRun) -> str:
    calls = run.run.fn_calling
    advice = "" if calls is None else f"try --use-fn-calling {'false' if calls else 'true'} in a new run, and "
    sentence = f"{advice}see that the endpoint serves this model with its chat template"
    return f"{sentence[0].upper()}{sentence[1:]}."


def _no_verdicts(run: StoredRun) -> list[str]:
    units, sentences = run.units, []
    classes = Counter(unit.failure.failure_class.value for unit in units if unit.failure is not None)
    if classes:
        class_counts = listing(
            [f"{name} {n:,}" for name, n in sorted(classes.items(), key=lambda item: (-item[1], item[0]))]
        )
        sentences.append(f"{count(classes.total(), 'unit')} failed without a verdict: {class_counts}.")
        sentences += [ADVICE[name] for name in ADVICE if name in classes]
    waiting = sum(unit.standing is Standing.NOT_RUN for unit in units)
    if waiting and _budget_reached(run):
        limit = money(run.run.spec.max_cost_usd or 0)
        sentences.append(
            f"{count(waiting, 'unit')} not begun: the run reached its --max-cost of {limit}; "
            "the same run with a larger one does the rest."
        )
    elif waiting:
        sentences.append(f"{count(waiting, 'unit')} not run: the run is not finished.")
    absent = sum(unit.standing is Standing.NO_PREDICTION for unit in units)
    if absent:
        sentences.append(f"{count(absent, 'unit has', 'units have')} no prediction; none of them is resolved.")
    return sentences


def _budget_reached(run: StoredRun) -> bool:
    """Return whether the cost limit of the run is reached."""
    limit, cost = (
        run.run.spec.max_cost_usd,
        add_usage([run.run.planning, *(unit.usage for unit in run.units)]).cost_usd,
    )
    return limit is not None and cost is not None and cost >= limit


def _integrity(units: list[StoredUnit]) -> list[str]:
    suspect = [unit for unit in units if unit.suspect]
    if not suspect:
        return []
    resolved = sum(unit.standing is Standing.RESOLVED for unit in suspect)
    among = f"; {resolved:,} of them {'counts' if resolved == 1 else 'count'} as resolved" if resolved else ""
    return [
        f"{count(len(suspect), 'verdict is', 'verdicts are')} suspect: a confirmation, the log or files contradict "
        f"{'it' if len(suspect) == 1 else 'them'}{among}."
    ]


def _unconfirmed(units: list[StoredUnit]) -> list[str]:
    reasons = unconfirmed_reasons(units)
    if not reasons:
        return []
    resolved = sum(unit.standing is Standing.RESOLVED for unit in units)
    number = sum(reasons.values())
    sentence = (
        f"{number:,} of {resolved:,} resolved {'is' if number == 1 else 'are'} unconfirmed: {count_words(reasons)}"
    )
    figures = confirmation_figures(units)
    sites = describe_sites(figures.tests_with_site, figures.fail_to_pass) if figures else ""
    return [f"{'; '.join(filter(None, [sentence, sites, shared_reason(units)]))}."]


def _not_general(units: list[StoredUnit]) -> list[str]:
    tried = [general for unit in units if (general := is_general(unit)) is not None]
    number = tried.count(False)
    if not number:
        return []
    units_tried = count(len(tried), "resolved unit")
    return [f"{number:,} of {units_tried} tried on neighbour inputs {'fails' if number == 1 else 'fail'} them."]


def _leaks(run: StoredRun) -> list[str]:
    solved = [unit.solve for unit in run.units if unit.solve is not None]
    sentences = []
    open_history = sum(not record.history.verified for record in solved if record.history)
    if open_history:
        sentences.append(f"{count(open_history, 'unit')} solved in a repository whose later history may be readable.")
    if agent_of(run.run.spec.agent).runs_commands and any(record.machine.network for record in solved):
        sentences.append("The agent could reach the network: it can have read the fix.")
    if saw_hints(run.run.spec.agent):
        sentences.append("The agent was shown the discussion of each issue (hints).")
    if run.run.spec.agent.issue_images:
        sentences.append("The model was shown the images of each issue that has any.")
    agent = run.run.spec.agent
    if agent_of(agent).takes_prompt_style and agent.prompt_style == "style-2-edits-only":
        sentences.append("The prompt showed which lines the reference patch touches (style-2-edits-only).")
    if agent.iterative and agent_of(agent).asks_model:
        sentences.append(
            f"Iterative: up to {count(agent.iterative_max_attempts, 'try', 'tries')} a unit while the critic "
            f"({agent.critic}) refused; the best patch counts."
        )
    return sentences


def _departures(run: StoredRun) -> list[str]:
    spec, sentences = run.run.spec, []
    bare = {
        unit.instance_id
        for unit in run.units
        for record in (unit.solve, unit.grade)
        if record is not None and record.machine is not None and record.machine.isolation == "none"
    }
    if bare:
        sentences.append(f"{count(len(bare), 'instance')} ran without isolation on the host.")
    if spec.grading.timeout_s != OFFICIAL_TIMEOUT_S:
        sentences.append(
            f"Tests were given {spec.grading.timeout_s:,} s; the official limit is {OFFICIAL_TIMEOUT_S:,} s."
        )
    if not spec.grading.network:
        sentences.append("Tests had no network; the official containers have one.")
    if agent_of(spec.agent).kind is AgentKind.CONTROL:
        resolved = sum(unit.standing is Standing.RESOLVED for unit in run.units)
        if resolved:
            sentences.append(
                f"{count(resolved, 'untouched repository', 'untouched repositories')} resolved: none should."
            )
    return sentences


def _unreadable(run: StoredRun) -> list[str]:
    if not run.unreadable:
        return []
    names = ", ".join(run.unreadable[:3]) + (", ..." if len(run.unreadable) > 3 else "")
    return [f"{count(len(run.unreadable), 'file')} of the run could not be read: {names}."]
