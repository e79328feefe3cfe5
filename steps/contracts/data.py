"""What plan hands on, and the patch; beside it shard.py, trajectory.py, solve_record.py, layer.py, verdict.py."""

from __future__ import annotations

import hmac
import secrets
from enum import StrEnum
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.families import SWEBENCH
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.record import Part, Place, Raw, Record
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.wire_protocol import WireProtocol

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
    """ISO 8601. To the microsecond, for runs of one name in two stores are told apart by it."""
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
    draw_key: str = ""
    """The secret of all draws of confirmations, in hexadecimal digits; a regrade has that of the run it grades again.
    Empty in runs of older releases."""

    def draw_seed(self, instance_id: str, attempt: int) -> bytes:
        """Return the secret that decides a unit's draws: the same in every try, so that nobody can draw again."""
        if not self.draw_key:
            return secrets.token_bytes(32)
        return hmac.digest(bytes.fromhex(self.draw_key), f"{instance_id}/{attempt}".encode(), "sha256")

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
