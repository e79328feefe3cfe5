"""An agent that ended before its first step: why, and the way out."""

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
    """Of one unit whose trajectory tells of so many turns and of this endpoint; empty where there is nothing to say.

    An agent of one's own may work and tell of no turns: then there is a patch.
    """
    if unit.solve is None or turns != 0 or not endpoint or (unit.patch or b"").strip():
        return ""
    stop = unit.solve.stop_reason
    why = f"{STOPS[stop].name}: {STOPS[stop].meaning}" if stop in STOPS else stop
    return f"The trajectory is empty, the agent made no step ({why}): {WAYS_OUT.get(stop, _OTHERWISE)}."


def doubt_no_steps(units: list[StoredUnit]) -> list[str]:
    """Of a run: how many units ended like this, for which reasons, and what to do about the most frequent one."""
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
