"""What plan and solve hand on, in flow order; beside it shard.py, layer.py, trajectory.py, verdict.py, failure.py."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict

from steps.contracts.agent_spec import agent_of
from steps.contracts.families import SWEBENCH
from steps.contracts.layer import LayerSummary
from steps.contracts.recipe import AgentProgram
from steps.contracts.record import Part, Place, Raw, Record
from steps.contracts.run_spec import RunSpec
from steps.contracts.timed import Timed
from steps.contracts.trajectory import Replayed, StopReason, Usage
from steps.contracts.wire_protocol import WireProtocol

WORKDIR = "/testbed"
"""Where images have the repository, unless their family says otherwise."""

# -- plan ------------------------------------------------------------------------------------------------------------


class DatasetLock(Part):
    """What exactly was read."""

    name: str
    split: str
    revision: str | None
    rows: int
    sha256: str
    """Over the selected rows, canonical JSON, in order of their ids."""


class UsedValidation(Part):
    """A validation that chose a run's instances."""

    validation_id: str
    unfit: dict[str, str]
    """Selected instance that it does not call valid -> its class there, or ``not_validated``."""
    kept: bool
    """Whether these are run all the same."""


class RunFile(Record):
    """The spec and what it resolved to; the first file of a run."""

    file: ClassVar[str] = "run.json"
    place: ClassVar[Place] = Place.RUN
    run_id: str
    spec: RunSpec
    dataset: DatasetLock
    model: str
    """Name in predictions and official file names."""
    versions: dict[str, str]
    """swe-argo, swebench, python, code (commit of this project where known), platform."""
    created_at: str
    input_hashes: dict[str, str] = {}
    """field of the spec that names a file -> sha256 of that file."""
    image_digests: dict[str, str] = {}
    """image -> digest, where known when the run was planned."""
    instruction: str = ""
    """Text of the prompt template that the agent is instructed by; empty where it has none."""
    words: str = ""
    """Text of the file with the scaffold's words; empty where they are its own."""
    program: AgentProgram | None = None
    """Of a run whose agent is a program of its own."""
    speaks: list[WireProtocol] = []
    """The protocols of such an agent's endpoint."""
    fn_calling: bool | None = None
    """Whether tools are called by the endpoint's function calling, or in text; None where no tool is called."""
    validation: UsedValidation | None = None
    """None where the spec names none."""
    not_gradeable: dict[str, str] = {}
    """Selected instance that was left out, for it cannot be graded -> why."""
    planning: Usage = Usage()
    """What plan's own small calls of the model took, each time that it planned."""

    @property
    def agent_title(self) -> str:
        """Who works on the issues, for people: of an agent program the recipe, with its version where it has one."""
        if self.program is None:
            return agent_of(self.spec.agent).name
        return f"{self.program.recipe.name} {self.program.recipe.version}".rstrip()

    @property
    def call_format(self) -> Literal["function_calling", "text"] | None:
        """``fn_calling`` in the words of trajectories and reports."""
        if self.fn_calling is None:
            return None
        return "function_calling" if self.fn_calling else "text"


class Stage(StrEnum):
    """Where a unit begins."""

    SOLVE = "solve"
    GRADE = "grade"
    NONE = "none"


CANARY_ATTEMPT = 0
"""Number of the units that grade an instance's own reference patch before a run's attempts, from 1, begin."""


class Unit(Part):
    """One attempt at one instance."""

    instance_id: str
    attempt: int
    begins: Stage
    repo: str
    image: str


class Plan(Record):
    """What is to be done, ordered by repository so that images are shared."""

    file: ClassVar[str] = "plan.json"
    place: ClassVar[Place] = Place.RUN
    run_id: str
    units: list[Unit]
    notices: list[str] = []
    """What a person should know before the run: a slice that was cut, images that take disk, ..."""
    canary: list[Unit] = []
    """Reference patches that are graded first, on the run's own machines; no units of the run."""
    unpredicted: int = 0
    """Units that nothing is done for: no prediction, no patch of the earlier run."""

    @property
    def word(self) -> str:
        """What is done, was done, and is not done, for whoever begins the run."""
        done_before = len(self.units) - len(self.to_do) - self.unpredicted
        words = [f"{len(self.to_do)} {'unit' if len(self.to_do) == 1 else 'units'} to do"]
        words += [f"{done_before} done before"] if done_before else []
        words += [f"{self.unpredicted} without a prediction"] if self.unpredicted else []
        return ", ".join(words)

    @property
    def to_do(self) -> list[Unit]:
        """The units that have something to do."""
        return [unit for unit in self.units if unit.begins is not Stage.NONE]

    @property
    def canary_to_do(self) -> list[Unit]:
        """Those of the canary that are not known to be resolved."""
        return [unit for unit in self.canary if unit.begins is not Stage.NONE]


class TaskMachine(Part):
    """What a task says of the machine that it is worked on in, where the person who runs it says nothing else."""

    workdir: str | None = None
    """Where work begins; None: where the image has it."""
    variables: dict[str, str] = {}
    """Of the environment of all commands."""
    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    agent_timeout_s: float | None = None


class FileContext(Part):
    """A file that a prompt shows."""

    path: str
    text: str | None = None
    """Its content; None where it is to be read in the sandbox."""
    windows: list[tuple[int, int]] | None = None
    """Only these lines of it, from 1, both ends included; all of them by default. One that would begin above the first
    line is counted from the last, as SWE-bench's own windows are."""
    readme: bool = False
    """Whether it stands before the others, as what the repository says of itself."""


class Instance(Record):
    """What an agent may know about an issue."""

    file: ClassVar[str] = "instance.json"
    place: ClassVar[Place] = Place.INSTANCE
    instance_id: str
    repo: str
    version: str
    base_commit: str
    image: str
    problem_statement: str
    hints_text: str | None = None
    """Only with --hints."""
    images: list[str] = []
    """Addresses of the issue's images, http(s): or data:."""
    context: list[FileContext] | None = None
    """For agent oneshot: the files that a retrieval column names, in its order."""
    resource_factor: float = 1.0
    """Multiplies what its sandboxes may take, before any retry does."""
    created_at: str = ""
    difficulty: str | None = None
    family: str = SWEBENCH
    workdir: str = WORKDIR
    """Where its image has the repository."""
    machine: TaskMachine | None = None


class Answer(Record):
    """What an agent may not know: what grading needs, in the shape of its family. Handed to grade alone."""

    model_config = ConfigDict(extra="allow", frozen=True)
    file: ClassVar[str] = "answer.json"
    place: ClassVar[Place] = Place.INSTANCE
    instance_id: str
    family: str = SWEBENCH
    row_sha256: str = ""
    """Of its normalised row: what a validation was made of. Empty in runs that were planned before there was any."""


# -- solve -----------------------------------------------------------------------------------------------------------


class Patch(Raw):
    """A unified diff, byte for byte."""

    file: ClassVar[str] = "patch.diff"
    place: ClassVar[Place] = Place.UNIT

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The bytes of a patch that came through JSON: surrogates of PEP 383 are the bytes they stand for."""
        try:
            return cls(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # half of a surrogate pair: not text at all, and it will not apply
            return cls(text.encode("utf-8", "replace"))

    @property
    def text(self) -> str:
        """The patch as JSON carries it; ``from_text`` gives the same bytes again."""
        return self.data.decode("utf-8", "surrogateescape")


class Machine(Part):
    """The sandbox a stage ran in."""

    backend: str
    image: str
    image_digest: str | None
    isolation: str
    """container, microvm, bubblewrap, or none."""
    network: bool
    cpus: float | None = None
    memory_mb: int | None = None
    resource_factor: float = 1.0
    workdir: str = WORKDIR
    """Where it has the repository, and commands begin."""
    usd_per_hour: float | None = None
    """What its provider takes while it runs; None where nobody does, or its price is not known."""


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
