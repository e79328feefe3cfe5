"""SolveRecord: how the solve of a unit went."""

from __future__ import annotations

from typing import ClassVar

from swe_argo.steps.contracts.layer import LayerSummary
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.record import Part, Place
from swe_argo.steps.contracts.recording import Replayed
from swe_argo.steps.contracts.timed import Timed
from swe_argo.steps.contracts.trajectory import StopReason, Usage


class History(Part):
    """What was hidden of the repository's history before the agent began, and the proof."""

    head: str
    """Commit the patch is taken against."""
    refs_removed: int
    objects_before: int
    objects_after: int
    unreachable_after: int
    verified: bool
    """No ref, reflog entry, stash, remote, alternate or object remains that HEAD does not reach."""


class SolveAttempt(Part):
    """One attempt inside a solve (iterative mode)."""

    number: int
    stop_reason: StopReason
    temperature: float | None = None
    accepted: bool
    """By the critic."""
    chosen: bool
    patch_bytes: int
    usage: Usage


class Continued(Part):
    """What a solve took over from earlier tries of its unit that were lost."""

    tries: list[str] = []
    """The processes that had asked, oldest first."""
    calls: int = 0
    """Answers that were not asked for again."""
    usage: Usage = Usage()
    """What these had cost: of the solve's usage, and of those tries', too."""
    started_over: str = ""
    """Why it began anew, or an attempt of it did, though there was something to go on from; empty where none did."""


class SolveRecord(Timed):
    """How a solve went."""

    file: ClassVar[str] = "solve.json"
    place: ClassVar[Place] = Place.UNIT
    instance_id: str
    attempt: int
    agent: str
    stop_reason: StopReason
    history: History | None
    """None where there is no repository to hide any of: the family hands on files of the whole machine."""
    machine: Machine
    seconds: dict[str, float]
    """Stage -> seconds: create, prepare, agent, patch."""
    usage: Usage = Usage()
    """Of its whole conversation, with what was taken over."""
    continued: Continued | None = None
    """None where there was nothing to go on from."""
    kept_calls: str = ""
    """What the files are called, up to their numbers, in which its answers lie among the unit's tries until the run's
    report is written; empty where none were kept."""
    patch_bytes: int
    layer_bytes: int = 0
    layer: LayerSummary | None = None
    """None where there is none, or an older version took it."""
    patch_note: str = ""
    """Why the patch (or layer) is empty where that is not for want of changes: the agent deleted the repository, and
    the like."""
    attempts: list[SolveAttempt] = []
    """In iterative mode: all of them, in order. ``usage`` is their sum."""
    replayed: Replayed | None = None
    """Of agent replay: whether it came out the same."""

    @property
    def spent(self) -> Usage:
        """What this try itself took: failed ones tell of what it took over."""
        return self.usage if self.continued is None else self.usage - self.continued.usage

    @property
    def word(self) -> str:
        """Why the agent stopped."""
        return self.stop_reason.value
