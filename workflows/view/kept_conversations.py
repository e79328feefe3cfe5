"""What agents elsewhere have done so far, turn by turn: of the answered calls that the store keeps."""

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
from swe_argo.steps.contracts.kept_calls import KeptCall, calls_that_count
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import Turn
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.images import describe_images
from swe_argo.steps.reports.unit.conversation import Conversation, read_conversation
from swe_argo.steps.store import Store
from swe_argo.steps.store.kept_calls import read_answered
from swe_argo.workflows.view.answered_units import AnsweredUnit

KEPT = 8
"""Units in memory."""


@dataclass
class _ReadCalls:
    """What was read of a unit's parts; those that come later are later."""

    opening: list[Turn]
    parts: set[str] = field(default_factory=set)
    calls: list[KeptCall] = field(default_factory=list)


class KeptConversations:
    """Those of units that somebody looks at. A part that was read is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[str, str], _ReadCalls] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run: RunFile, unit: AnsweredUnit) -> Conversation | None:
        """What a scaffold of ours was told first is made anew, for nobody keeps it; of an agent program that is
        missing, and what it was shown. None where no answer can be read. Raises InfraError, ConfigError."""
        name = (run.created_at, unit.parts[0])
        with self._lock:
            if name not in self._known:
                self._known[name] = _ReadCalls(self._make_opening(run, unit.progress.instance_id))
            known = self._known[name]
            self._known.move_to_end(name)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            unread = [part for part in unit.parts if part not in known.parts]
            for calls in read_answered(self._store, unread).values():
                known.calls = calls_that_count([*known.calls, *(_without_bulk(call) for call in calls)])
            known.parts.update(unread)
            attempts = _attempts(known.calls)
        if not attempts:
            return None
        documents = [_document(run, known.opening, calls) for calls in attempts]
        return read_conversation(json.dumps(documents[-1] | {"subagent_trajectories": documents[:-1]}).encode())

    def _make_opening(self, run: RunFile, instance_id: str) -> list[Turn]:
        """Empty where another version of swe-argo worked, whose words may be others, and of agents of one's own."""
        spec, name = run.spec.agent, key(Instance, run.run_id, instance_id)
        style = PROGRAM if run.program else own_style(spec)
        if style is None or run.versions.get("swe-argo") != version("swe-argo"):
            return []
        try:
            instance = Instance.from_bytes(self._store.get(name))
            told = first_messages(
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
            Turn(step_id=number, source=message["role"], message=message["content"] + images * (message is told[-1]))
            for number, message in enumerate(told, 1)
        ]


def _without_bulk(call: KeptCall) -> KeptCall:
    """The call as it is shown: the bytes and the ids of its tokens take the most room."""
    return call.model_copy(update={"message": {}, "forwarded": None, "metrics": call.as_turn().metrics})


def _attempts(calls: Sequence[KeptCall]) -> list[list[KeptCall]]:
    """The answers of each of a solve's attempts (iterative mode)."""
    numbers = sorted({call.attempt for call in calls})
    return [[call for call in calls if call.attempt == number] for number in numbers]


def _document(run: RunFile, opening: Sequence[Turn], calls: Sequence[KeptCall]) -> dict[str, Any]:
    """As a trajectory has it. What came of a call's actions is in the next."""
    shown = [*(call.shown for call in calls[1:]), []]
    turns = [
        call.as_turn(number, seen)
        for number, (call, seen) in enumerate(zip(calls, shown, strict=True), len(opening) + 1)
        if call.ended is None
    ]
    name = run.program.recipe.name if run.program else agent_of(run.spec.agent).name
    return {
        "agent": {"name": name, "model_name": run.model, "extra": {"format": run.call_format}},
        "steps": [turn.model_dump(mode="json") for turn in (*opening, *turns)],
        "extra": {"seconds": calls[-1].seconds, "usage": calls[-1].usage.model_dump()},
    }
