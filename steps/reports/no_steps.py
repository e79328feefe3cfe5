"""Agents that ended before their first step: the reason, and advice."""

from __future__ import annotations

from collections import Counter

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.labels import STOPS
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.reports.text.formatting import count, listing

WAYS_OUT: dict[str, str] = {
    StopReason.TIMEOUT: "raise --agent-timeout, or --llm-concurrency where its calls waited for their turn",
    StopReason.CALL_TIMEOUT: "raise --llm-timeout, or see why the endpoint is slow",
    StopReason.CONTEXT_LIMIT: "raise --max-token-limit",
    StopReason.CONTEXT_OVERFLOW: "serve the model with a longer context, or lower --max-output-tokens",
    StopReason.TOKEN_LIMIT: "raise --max-total-tokens",
    StopReason.COST_LIMIT: "raise --max-cost-per-instance",
    StopReason.CONTENT_FILTER: "ask an endpoint that does not filter, or lower its filter",
    StopReason.REFUSAL: "choose another model: this one refuses the task itself",
}
_OTHERWISE = "see the agent's log in the unit's folder, and the log of the endpoint"


def describe_no_steps(unit: StoredUnit, turns: int | None, endpoint: str) -> str:
    """Return the sentence about a unit without steps, by its trajectory's turns and endpoint; empty if it has steps.

    A custom agent may work without recording turns: then there is a patch.
    """
    if unit.solve is None or turns != 0 or not endpoint or (unit.patch or b"").strip():
        return ""
    stop = unit.solve.stop_reason
    why = f"{STOPS[stop].name}: {STOPS[stop].meaning}" if stop in STOPS else stop
    return f"The trajectory is empty, the agent made no step ({why}): {WAYS_OUT.get(stop, _OTHERWISE)}."


def doubt_no_steps(units: list[StoredUnit]) -> list[str]:
    """Return a caveat: number of units without steps, their stop reasons, and advice for the most frequent one."""
    stops = Counter(
        unit.solve.stop_reason
        for unit in units
        if unit.solve is not None and describe_no_steps(unit, unit.turns, unit.endpoint)
    )
    if not stops:
        return []
    names = listing([f"{STOPS[stop].name} {number:,}" for stop, number in stops.most_common()])
    way = WAYS_OUT.get(stops.most_common(1)[0][0], _OTHERWISE)
    return [
        f"In {count(stops.total(), 'unit')} the trajectory is empty, the agent made no step ({names}): {way}. "
        "That measures the set-up, not the agent."
    ]
