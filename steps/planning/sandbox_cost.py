"""Estimate of the cost of a run's sandboxes, from the units to do and the price, in a line."""

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
    """Return expected and highest cost, by the newest run of the agent on the dataset; nothing if none is paid."""
    to_do = [unit for unit in units if unit.begins is not Stage.NONE]
    if usd_per_hour is None or not to_do:
        return []
    most = money(sum(_longest_s(spec, unit) for unit in to_do) / 3600 * usd_per_hour)
    price = f"sandboxes cost {money(usd_per_hour)} an hour each"
    bound = f"at most {most} for {count(len(to_do), 'unit')}, if all take all the time that they may"
    known = find_earlier(spec, dataset, store)
    if known is None:
        return [f"{price}, {bound}; no run of this store says how long they take"]
    expected = money(len(to_do) * known.seconds / 3600 * usd_per_hour)
    return [f"{price}: about {expected} by run {known.run_id}, whose units took {duration(known.seconds)}; {bound}"]


def _longest_s(spec: RunSpec, unit: Unit) -> float:
    """Return the agent's time if it solves, the tests' time, and that of two more test runs for a confirmation."""
    solve = spec.agent.timeout_s if unit.begins is Stage.SOLVE and agent_of(spec.agent).takes_time else 0.0
    return solve + spec.grading.timeout_s * (1 if spec.grading.confirm == "never" else 3)


def find_earlier(spec: RunSpec, dataset: str, store: Store, model: str | None = None) -> EarlierRun | None:
    """Return the newest reported run of the same agent on the same dataset, and of ``model`` if given."""
    names = store.folders("runs/")
    contents = store.get_many(name for run in names for name in (key(RunFile, run), key(Summary, run)))
    known = {}
    for run in names:
        try:
            file = RunFile.from_bytes(contents[key(RunFile, run)])
            summary = Summary.from_bytes(contents[key(Summary, run)])
        except (KeyError, ValueError):
            continue
        total, usd = summary.seconds.get("total"), summary.cost.usage.cost_usd
        is_like = (file.dataset.name, agent_of(file.spec.agent).name) == (dataset, agent_of(spec.agent).name)
        if total and is_like and model in (None, file.model):
            each = None if usd is None else usd / total.units
            known[file.created_at] = EarlierRun(run, file.model, total.total / total.units, each)
    return known[max(known)] if known else None
