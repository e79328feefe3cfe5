"""Units to do and the price of a sandbox -> what the run's sandboxes will cost, in a line."""

from __future__ import annotations

from dataclasses import dataclass

from steps.contracts.agent_spec import agent_of
from steps.contracts.data import RunFile, Stage, Unit
from steps.contracts.record import key
from steps.contracts.run_spec import RunSpec
from steps.reports.figures.summary import Summary
from steps.reports.text.formatting import count, duration, money
from steps.store import Store


@dataclass(frozen=True)
class KnownTime:
    """How long a unit took on average in an earlier run, all stages and failed tries together."""

    run_id: str
    seconds: float


def cost_notices(spec: RunSpec, dataset: str, units: list[Unit], usd_per_hour: float | None, store: Store) -> list[str]:
    """By what the newest run of the same agent on the same dataset took, and at most; nothing where nothing is paid."""
    to_do = [unit for unit in units if unit.begins is not Stage.NONE]
    if usd_per_hour is None or not to_do:
        return []
    most = money(sum(_longest_s(spec, unit) for unit in to_do) / 3600 * usd_per_hour)
    price = f"sandboxes cost {money(usd_per_hour)} an hour each"
    bound = f"at most {most} for {count(len(to_do), 'unit')}, if all take all the time that they may"
    known = _known_time(spec, dataset, store)
    if known is None:
        return [f"{price}, {bound}; no run of this store says how long they take"]
    expected = money(len(to_do) * known.seconds / 3600 * usd_per_hour)
    return [f"{price}: about {expected} by run {known.run_id}, whose units took {duration(known.seconds)}; {bound}"]


def _longest_s(spec: RunSpec, unit: Unit) -> float:
    """The agent's time where it solves, the tests' time, and theirs once more for a counter-proof."""
    solve = spec.agent.timeout_s if unit.begins is Stage.SOLVE and agent_of(spec.agent).takes_time else 0.0
    return solve + spec.grading.timeout_s * (1 if spec.grading.counter_proof == "never" else 2)


def _known_time(spec: RunSpec, dataset: str, store: Store) -> KnownTime | None:
    names = store.folders("runs/")
    contents = store.get_many(name for run in names for name in (key(RunFile, run), key(Summary, run)))
    known = {}
    for run in names:
        try:
            file = RunFile.from_bytes(contents[key(RunFile, run)])
            total = Summary.from_bytes(contents[key(Summary, run)]).seconds.get("total")
        except (KeyError, ValueError):
            continue
        if total and (file.dataset.name, agent_of(file.spec.agent).name) == (dataset, agent_of(spec.agent).name):
            known[file.created_at] = KnownTime(run, total.total / total.units)
    return known[max(known)] if known else None
