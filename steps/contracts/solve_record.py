"""SolveRecord: the record of a unit's solve step."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from swe_argo.steps.contracts.data import EgressHost, Machine
from swe_argo.steps.contracts.record import AnyText, Part, Place, Raw
from swe_argo.steps.contracts.recording import Replayed
from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.contracts.unit_progress import Timed


class Layer(Raw):
    """The files that an agent changed in its sandbox (steps/layers/archive.py).

    Empty, not missing, if there are none, so that it replaces the layer of an earlier try.
    """

    file: ClassVar[str] = "layer.tgz"
    place: ClassVar[Place] = Place.UNIT


class LayerChange(Part):
    """A file or folder that a layer adds, changes or removes."""

    path: AnyText
    """Absolute path; undecodable bytes are surrogates (PEP 383)."""
    change: Literal["new", "changed", "deleted"]
    size: int = 0
    """Size of a file, in bytes."""


class LayerSummary(Part):
    """The number of changes in a layer, and the first ones."""

    new: int
    changed: int
    deleted: int
    """Deleted files and folders; a deleted folder counts once."""
    first: list[LayerChange]
    """The first changes by path, as many as a page shows."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (self.new or self.changed or self.deleted)


class History(Part):
    """The repository's history that was hidden from the agent, and the proof that it is gone."""

    head: str
    """Commit against which the patch is taken."""
    refs_removed: int
    objects_before: int
    objects_after: int
    unreachable_after: int
    verified: bool
    """Whether no ref, reflog entry, stash, remote, alternate or object remains that HEAD does not reach."""


class SolveAttempt(Part):
    """One attempt within a solve (iterative mode)."""

    number: int
    stop_reason: StopReason
    temperature: float | None = None
    accepted: bool
    """Whether the critic accepted it."""
    chosen: bool
    patch_bytes: int
    usage: Usage


class Continued(Part):
    """Model calls that a solve took over from lost tries of its unit."""

    tries: list[str] = []
    """Names of the tries that made the calls, oldest first."""
    calls: int = 0
    """Number of calls taken over."""
    usage: Usage = Usage()
    """Usage of these calls; part of the solve's usage and of the lost tries' usage."""
    started_over: str = ""
    """Why the solve, or one of its attempts, started over in spite of recorded calls; empty if none did."""


class SolveRecord(Timed):
    """The result of a unit's solve step."""

    file: ClassVar[str] = "solve.json"
    place: ClassVar[Place] = Place.UNIT
    instance_id: str
    attempt: int
    agent: str
    stop_reason: StopReason
    history: History | None
    """None if there is no repository whose history could be hidden: the family's submission is a layer."""
    machine: Machine
    seconds: dict[str, float]
    """Stage -> seconds: create, prepare, agent, patch."""
    usage: Usage = Usage()
    """Usage of the whole conversation, including calls taken over."""
    continued: Continued | None = None
    """None if there were no recorded calls to resume from."""
    kept_calls: str = ""
    """Prefix of the files with its recorded calls, which lie in the unit's tries until the run's report is written;
    empty if none were recorded."""
    patch_bytes: int
    layer_bytes: int = 0
    layer: LayerSummary | None = None
    """None without a layer, and in records of older versions."""
    patch_note: str = ""
    """Why the patch or layer is empty although there may have been changes, e.g. the agent deleted the repository."""
    attempts: list[SolveAttempt] = []
    """All attempts of iterative mode, in order; ``usage`` is their sum."""
    egress: list[EgressHost] = []
    """The hosts for which all its sandboxes asked the egress proxy; empty without one."""
    replayed: Replayed | None = None
    """Comparison with the recording, for agent replay."""

    @property
    def spent(self) -> Usage:
        """Return the usage of this try alone, without calls taken over."""
        return self.usage if self.continued is None else self.usage - self.continued.usage

    @property
    @override
    def word(self) -> str:
        """Return why the agent stopped."""
        return self.stop_reason.value
