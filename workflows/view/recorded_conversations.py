"""Conversations of running agents on other machines, rebuilt from the recorded calls in the store."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from swe_argo.steps.agents.first_messages import PROGRAM, first_messages, own_style
from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.data import Instance, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.recorded_calls import RecordedCall, effective_calls
from swe_argo.steps.contracts.trajectory import Turn
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.images import describe_images
from swe_argo.steps.reports.unit.conversation import Conversation, read_conversation
from swe_argo.steps.store import Store
from swe_argo.steps.store.recorded_calls import read_answered
from swe_argo.workflows.view.answered_units import RecordedUnit

CACHE_SIZE = 8
"""Number of units in the cache."""


@dataclass
class _ReadCalls:
    """The recorded calls of a unit that were read so far."""

    opening: list[Turn]
    parts: set[str] = field(default_factory=set)
    calls: list[RecordedCall] = field(default_factory=list)


class RecordedConversations:
    """A cache of running units' conversations. Each recorded-call file is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[tuple[str, str], _ReadCalls] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run: RunFile, unit: RecordedUnit) -> Conversation | None:
        """Return a running unit's conversation; None if no call can be read.

        The first prompt is not stored: a scaffold's is rendered again, an agent program's is missing. Raises InfraError
        if the store fails, ConfigError if it denies access.
        """
        name = (run.created_at, unit.parts[0])
        with self._lock:
            if name not in self._cache:
                self._cache[name] = _ReadCalls(self._make_opening(run, unit.progress.instance_id))
            cached = self._cache[name]
            self._cache.move_to_end(name)
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
            unread = [part for part in unit.parts if part not in cached.parts]
            for calls in read_answered(self._store, unread).values():
                cached.calls = effective_calls([*cached.calls, *(_without_bulk(call) for call in calls)])
            cached.parts.update(unread)
            attempts = _attempts(cached.calls)
        if not attempts:
            return None
        documents = [_document(run, cached.opening, calls) for calls in attempts]
        return read_conversation(json.dumps(documents[-1] | {"subagent_trajectories": documents[:-1]}).encode())

    def _make_opening(self, run: RunFile, instance_id: str) -> list[Turn]:
        """Return the first prompt; empty for custom agents and for runs of another version of swe-argo."""
        spec, name = run.spec.agent, key(Instance, run.run_id, instance_id)
        style = PROGRAM if run.program else own_style(spec)
        if style is None or run.versions.get("swe-argo") != version("swe-argo"):
            return []
        try:
            instance = Instance.from_bytes(self._store.get(name))
            prompt = first_messages(
                style,
                spec,
                instance,
                instruction=run.instruction,
                words=run.words,
                fn_calling=bool(run.fn_calling),
                hints=True,
            )
        except (FileNotFoundError, ValueError, ConfigError):
            return []
        images = describe_images(instance.images) if spec.issue_images else ""
        return [
            Turn(step_id=number, source=message["role"], message=message["content"] + images * (message is prompt[-1]))
            for number, message in enumerate(prompt, 1)
        ]


def _without_bulk(call: RecordedCall) -> RecordedCall:
    """Return the call without its large fields: raw bytes and token ids."""
    return call.model_copy(update={"message": {}, "forwarded": None, "metrics": call.as_turn().metrics})


def _attempts(calls: Sequence[RecordedCall]) -> list[list[RecordedCall]]:
    """Return the calls of each of a solve's attempts (iterative mode)."""
    numbers = sorted({call.attempt for call in calls})
    return [[call for call in calls if call.attempt == number] for number in numbers]


def _document(run: RunFile, opening: Sequence[Turn], calls: Sequence[RecordedCall]) -> dict[str, Any]:
    """Return the calls as a trajectory; each call contains the results of the previous call's actions."""
    observations = [*(call.observations for call in calls[1:]), []]
    turns = [
        call.as_turn(number, observation)
        for number, (call, observation) in enumerate(zip(calls, observations, strict=True), len(opening) + 1)
        if call.ended is None
    ]
    name = run.program.recipe.name if run.program else agent_of(run.spec.agent).name
    return {
        "agent": {"name": name, "model_name": run.model, "extra": {"format": run.call_format}},
        "steps": [turn.model_dump(mode="json") for turn in (*opening, *turns)],
        "extra": {"seconds": calls[-1].seconds, "usage": calls[-1].usage.model_dump()},
    }
