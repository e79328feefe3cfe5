"""What an agent hands on, by what its family wants: remembered before it begins, taken when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from swe_argo.steps.agents.history import hide_history
from swe_argo.steps.agents.patch import Start, extract, record_start
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.layer import LayerSummary
from swe_argo.steps.contracts.solve_record import History
from swe_argo.steps.families.family import HandsOn, load_family
from swe_argo.steps.layers.listing import Listing, record
from swe_argo.steps.layers.take import take
from swe_argo.steps.sandbox.protocol import Sandbox


@dataclass(frozen=True)
class HandedOn:
    """A patch or a layer, and why it is empty where that is not for want of changes."""

    patch: bytes = b""
    layer: bytes = b""
    note: str = ""
    summary: LayerSummary | None = None
    """Of a layer."""

    @property
    def answer(self) -> bytes:
        """The one of the two that there is."""
        return self.layer or self.patch


class WorkStart(Protocol):
    """A machine as an agent finds it. ``history`` is None where none was hidden."""

    history: History | None

    def take(self, box: Sandbox) -> HandedOn:
        """What differs now. Never fails for what the agent did."""


def begin(box: Sandbox, hands_on: HandsOn) -> WorkStart:
    """Remember a prepared machine; where a patch is wanted, hide what HEAD does not reach first.

    Of other machines nothing is hidden: what their repositories hold is part of the task. Raises ConfigError,
    InfraError, ResourceError.
    """
    if hands_on == "layer":
        return _FilesStart(record(box))
    history = hide_history(box)
    return _RepositoryStart(history, record_start(box, history.head))


def prepare(box: Sandbox, instance: Instance) -> WorkStart:
    """Make a fresh machine what an agent is to find, by the rule of its family. Raises as ``begin``."""
    family = load_family(instance.family)
    family.prepare(box, instance)
    return begin(box, family.hands_on)


def describe_start(start: WorkStart) -> dict[str, Any] | None:
    """A repository as an agent finds it, as JSON, for ``start_of`` in another process; None of whole machines."""
    if not isinstance(start, _RepositoryStart) or start.history is None:
        return None
    dirty = {_text(path): _text(entry) for path, entry in start.start.dirty.items()}
    found = {"root": start.start.root, "tree": start.start.tree, "dirty": dirty}
    return {"history": start.history.model_dump(mode="json"), "start": found}


def start_of(described: dict[str, Any]) -> WorkStart:
    """What ``describe_start`` described, of a machine that is a copy of that one."""
    found = described["start"]
    dirty = {_bytes(path): _bytes(entry) for path, entry in found["dirty"].items()}
    start = Start(root=found["root"], tree=found["tree"], dirty=dirty)
    return _RepositoryStart(History.model_validate(described["history"]), start)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


@dataclass
class _RepositoryStart:
    history: History | None
    start: Start

    def take(self, box: Sandbox) -> HandedOn:
        taken = extract(box, self.start)
        return HandedOn(patch=taken.data, note=taken.note)


@dataclass
class _FilesStart:
    listing: Listing
    history: History | None = None

    def take(self, box: Sandbox) -> HandedOn:
        taken = take(box, self.listing)
        return HandedOn(layer=taken.data, note=taken.note, summary=taken.summary)
