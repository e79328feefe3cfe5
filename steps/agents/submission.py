"""Deliverable of a solve: the state of the sandbox is recorded before the agent works, and its changes taken after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from swe_argo.steps.agents.history import hide_history
from swe_argo.steps.agents.patch import Start, extract, record_start
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.layer import LayerSummary
from swe_argo.steps.contracts.solve_record import History
from swe_argo.steps.families.family import HandsOn, load_family
from swe_argo.steps.layers.listing import Listing, list_machine
from swe_argo.steps.layers.take import create_layer
from swe_argo.steps.sandbox.protocol import Sandbox


@dataclass(frozen=True)
class Submission:
    """The solve's deliverable, a patch or a filesystem layer, with a note if it is empty for a special reason."""

    patch: bytes = b""
    layer: bytes = b""
    note: str = ""
    summary: LayerSummary | None = None
    """Summary of the layer."""

    @property
    def answer(self) -> bytes:
        """Return the layer if present, else the patch."""
        return self.layer or self.patch


class WorkStart(Protocol):
    """State of a sandbox before the agent works. ``history`` is None if no history was hidden."""

    history: History | None

    def take(self, box: Sandbox) -> Submission:
        """Return the changes since the start. Never fails because of the agent's actions."""


def record_start_state(box: Sandbox, hands_on: HandsOn) -> WorkStart:
    """Record the state of a prepared sandbox; for patches, first hide commits that HEAD does not reach.

    For layers nothing is hidden: the repositories are part of the task. Raises ConfigError if the history cannot be
    hidden, ResourceError if the machine runs out of disk or memory, InfraError if it fails otherwise.
    """
    if hands_on == "layer":
        return _LayerStart(list_machine(box))
    history = hide_history(box)
    return _RepositoryStart(history, record_start(box, history.head))


def prepare(box: Sandbox, instance: Instance) -> WorkStart:
    """Prepare a fresh sandbox for an agent, as its task family requires. Raises as ``record_start_state``."""
    family = load_family(instance.family)
    family.prepare(box, instance)
    return record_start_state(box, family.hands_on)


def describe_start(start: WorkStart) -> dict[str, Any] | None:
    """Return a repository's start state as JSON, for ``restore_start`` in another process; None for layers."""
    if not isinstance(start, _RepositoryStart) or start.history is None:
        return None
    dirty = {_text(path): _text(entry) for path, entry in start.start.changed_before.items()}
    fields = {"root": start.start.root, "tree": start.start.tree, "dirty": dirty}
    return {"history": start.history.model_dump(mode="json"), "start": fields}


def restore_start(description: dict[str, Any]) -> WorkStart:
    """Return the start state described by ``describe_start``, for a copy of that sandbox."""
    fields = description["start"]
    dirty = {_bytes(path): _bytes(entry) for path, entry in fields["dirty"].items()}
    start = Start(root=fields["root"], tree=fields["tree"], changed_before=dirty)
    return _RepositoryStart(History.model_validate(description["history"]), start)


def _text(data: bytes) -> str:
    # Maps every byte to one character: paths need not be UTF-8, but JSON holds only text.
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


@dataclass
class _RepositoryStart:
    history: History | None
    start: Start

    def take(self, box: Sandbox) -> Submission:
        extracted = extract(box, self.start)
        return Submission(patch=extracted.data, note=extracted.note)


@dataclass
class _LayerStart:
    listing: Listing
    history: History | None = None

    def take(self, box: Sandbox) -> Submission:
        extracted = create_layer(box, self.listing)
        return Submission(layer=extracted.data, note=extracted.note, summary=extracted.summary)
