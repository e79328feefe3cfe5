"""Estimate of the cost of a run's sandboxes."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.data import RunFile, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.text.formatting import count, duration, money
from swe_argo.steps.store import Store


@dataclass(frozen=True)
class EarlierRun:
    """The average use per unit in a run, all stages and failed tries together."""

    run_id: str
    model: str
    seconds: float
    usd: float | None
    """The cost of the model alone; None if no price was known."""


def cost_notices(spec: RunSpec, dataset: str, units: list[Unit], usd_per_hour: float | None, store: Store) -> list[str]:
    """Return a notice with expected and highest cost, based on the agent's newest run; none without a price."""
    to_do = [unit for unit in units if unit.begins is not Stage.NONE]
    if usd_per_hour is None or not to_do:
        return []
    highest = money(sum(_longest_s(spec, unit) for unit in to_do) / 3600 * usd_per_hour)
    price = f"sandboxes cost {money(usd_per_hour)} an hour each"
    bound = f"at most {highest} for {count(len(to_do), 'unit')}, if each uses its whole time limit"
    earlier = find_earlier(spec, dataset, store)
    if earlier is None:
        return [f"{price}, {bound}; no estimate, because the store has no earlier run of this agent on this dataset"]
    expected = money(len(to_do) * earlier.seconds / 3600 * usd_per_hour)
    pace = f"run {earlier.run_id} took {duration(earlier.seconds)} per unit"
    return [f"{price}: about {expected} ({pace}); {bound}"]


def _longest_s(spec: RunSpec, unit: Unit) -> float:
    """Return the time limits of a unit in seconds: solving, one test run, and two more for a confirmation."""
    solve = spec.agent.timeout_s if unit.begins is Stage.SOLVE and agent_of(spec.agent).takes_time else 0.0
    return solve + spec.grading.timeout_s * (1 if spec.grading.confirm == "never" else 3)


def find_earlier(spec: RunSpec, dataset: str, store: Store, model: str | None = None) -> EarlierRun | None:
    """Return the newest reported run of the same agent on the same dataset, and of ``model`` if given."""
    run_ids = store.folders("runs/")
    contents = store.get_many(name for run in run_ids for name in (key(RunFile, run), key(Summary, run)))
    by_time = {}
    for run in run_ids:
        try:
            file = RunFile.from_bytes(contents[key(RunFile, run)])
            summary = Summary.from_bytes(contents[key(Summary, run)])
        except (KeyError, ValueError):
            continue
        total, usd = summary.seconds.get("total"), summary.cost.usage.cost_usd
        is_similar = (file.dataset.name, agent_of(file.spec.agent).name) == (dataset, agent_of(spec.agent).name)
        if total and is_similar and model in (None, file.model):
            unit_usd = None if usd is None else usd / total.units
            by_time[file.created_at] = EarlierRun(run, file.model, total.total / total.units, unit_usd)
    return by_time[max(by_time)] if by_time else None
