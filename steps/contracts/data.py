"""Every datum in flow order. Each knows its file name and where in the store it lies; nothing else does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from steps.contracts.run import RunSpec


class Place(StrEnum):
    """Which folder of a run a datum lies in."""

    RUN = "runs/{run}"
    SHARDS = "runs/{run}/shards"
    INSTANCE = "runs/{run}/instances/{instance}"
    UNIT = "runs/{run}/units/{instance}/{attempt}"
    TRY = "runs/{run}/units/{instance}/{attempt}/tries/{name}"
    REPORT = "runs/{run}/report"


class Record(BaseModel):
    """A datum that is a JSON object."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    file: ClassVar[str]
    place: ClassVar[Place]

    @property
    def word(self) -> str:
        """What it comes to, in a word or two, for whoever watches the run; empty where there is nothing to say."""
        return ""

    def to_bytes(self) -> bytes:
        """The file's content: JSON, ASCII only, so that any text (lone surrogates too) survives."""
        return (json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the file's content. Raises pydantic.ValidationError or ValueError."""
        return cls.model_validate(json.loads(data))


@dataclass(frozen=True)
class Raw:
    """A datum whose bytes are somebody else's format, kept byte for byte."""

    data: bytes
    file: ClassVar[str]
    place: ClassVar[Place]

    def to_bytes(self) -> bytes:
        """The file's content, unchanged."""
        return self.data

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Wrap the file's content."""
        return cls(data)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - pydantic turns ValueError into its own error
    return value


# Text that may hold undecodable bytes as lone surrogates (PEP 383): patches are bytes that must travel through JSON.
AnyText = Annotated[str, PlainValidator(_text), PlainSerializer(lambda v: v, return_type=Any)]


class Part(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# -- plan ------------------------------------------------------------------------------------------------------------


class DatasetLock(Part):
    """What exactly was read."""

    name: str
    split: str
    revision: str | None
    rows: int
    sha256: str
    """Over the selected rows, canonical JSON, in order of their ids."""


class RunFile(Record):
    """The wish and what it resolved to; the first file of a run."""

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
    """field of the wish that names a file -> sha256 of that file."""
    image_digests: dict[str, str] = {}
    """image -> digest, where known when the run was planned."""


class Stage(StrEnum):
    """Where a unit begins."""

    SOLVE = "solve"
    GRADE = "grade"
    NONE = "none"


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

    @property
    def to_do(self) -> list[Unit]:
        """The units that have something to do."""
        return [unit for unit in self.units if unit.begins is not Stage.NONE]


class ShardUnit(Part):
    """A unit as an engine hands it on: all that may travel as a parameter."""

    id: str
    attempt: int
    begins: Stage


class Shard(Raw):
    """A part of the units that have something to do: a JSON list of ShardUnit, in a file named by its number."""

    file: ClassVar[str] = "{name}.json"
    place: ClassVar[Place] = Place.SHARDS

    @classmethod
    def of(cls, units: list[Unit]) -> Self:
        """The part that holds these units."""
        items = [ShardUnit(id=unit.instance_id, attempt=unit.attempt, begins=unit.begins) for unit in units]
        return cls(json.dumps([item.model_dump(mode="json") for item in items], separators=(",", ":")).encode())

    @property
    def units(self) -> list[ShardUnit]:
        """The units in it."""
        return [ShardUnit.model_validate(item) for item in json.loads(self.data)]


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
    created_at: str = ""
    difficulty: str | None = None


class Answer(Record):
    """What an agent may not know: the columns grading needs. Handed to grade alone."""

    file: ClassVar[str] = "answer.json"
    place: ClassVar[Place] = Place.INSTANCE
    instance_id: str
    repo: str
    version: str
    image: str
    patch: str
    test_patch: str
    eval_script: str
    FAIL_TO_PASS: list[str]
    PASS_TO_PASS: list[str]
    log_parser: str
    eval_type: str
    image_assets: dict[str, Any] = {}

    def row(self) -> dict[str, Any]:
        """The row as ``swebench.harness.utils.make_test_spec`` reads it."""
        return self.model_dump()


# -- solve -----------------------------------------------------------------------------------------------------------


class StopReason(StrEnum):
    """Why an agent stopped."""

    FINISHED = "finished"
    MAX_STEPS = "max_steps"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """The machine failed under it: only in the trajectory that a failed try leaves."""


class Action(Part):
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any]


class Recording(Record):
    """Actions to perform again, written by plan for agent ``replay`` from whatever format they were recorded in."""

    file: ClassVar[str] = "recording.json"
    place: ClassVar[Place] = Place.UNIT
    source: str
    actions: list[Action]


class TrajectoryStep(Part):
    """One action and what came of it."""

    thought: str = ""
    action: Action
    observation: AnyText
    exit_code: int | None
    timed_out: bool = False
    seconds: float


class Usage(Part):
    """What a model call, or all of them together, took."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None


class Trajectory(Record):
    """Everything an agent did."""

    file: ClassVar[str] = "trajectory.json"
    place: ClassVar[Place] = Place.UNIT
    format: Literal["swe-argo-1"] = "swe-argo-1"
    instance_id: str
    attempt: int
    agent: str
    model: str
    steps: list[TrajectoryStep]
    stop_reason: StopReason
    usage: Usage = Usage()
    started_at: str
    seconds: float


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
    """container, bubblewrap, or none."""
    network: bool
    cpus: float | None = None
    memory_mb: int | None = None
    resource_factor: float = 1.0


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


class SolveRecord(Record):
    """How a solve went."""

    file: ClassVar[str] = "solve.json"
    place: ClassVar[Place] = Place.UNIT
    instance_id: str
    attempt: int
    agent: str
    stop_reason: StopReason
    history: History
    machine: Machine
    seconds: dict[str, float]
    """Stage -> seconds: create, prepare, agent, patch."""
    usage: Usage = Usage()
    patch_bytes: int
    patch_note: str = ""
    """Why the patch is empty where that is not for want of changes: the agent deleted the repository, and the like."""

    @property
    def word(self) -> str:
        """Why the agent stopped."""
        return self.stop_reason.value


# -- grade -----------------------------------------------------------------------------------------------------------


class TestLog(Raw):
    """What the official script printed, stdout and stderr in one stream."""

    __test__ = False  # not a test class, whatever pytest thinks of its name
    file: ClassVar[str] = "test_output.txt"
    place: ClassVar[Place] = Place.UNIT


class Report(Raw):
    """The official verdict, as the harness writes it."""

    file: ClassVar[str] = "report.json"
    place: ClassVar[Place] = Place.UNIT


class InstanceLog(Raw):
    """The log the harness keeps while it grades one instance."""

    file: ClassVar[str] = "run_instance.log"
    place: ClassVar[Place] = Place.UNIT


class EvalScript(Raw):
    """The official script, as it ran."""

    file: ClassVar[str] = "eval.sh"
    place: ClassVar[Place] = Place.UNIT


class Outcome(StrEnum):
    """What became of a patch. Each is definitive: a resumed run does not try again."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY_PATCH = "empty_patch"
    PATCH_FAILED = "patch_does_not_apply"
    TESTS_TIMED_OUT = "tests_timed_out"
    LOG_UNREADABLE = "log_not_gradeable"
    NO_PREDICTION = "no_prediction"
    """The predictions file has nothing for this instance: written by plan, never run (``incomplete_ids``)."""


class Evidence(Part):
    """The second channel: what is known of the tests beside the log they printed."""

    exit_code: int | None
    """Of the test command, written outside the log; None where there is none (a saved log, a killed shell)."""
    logged_exit_codes: list[str]
    start_markers: int
    end_markers: int


class Finding(Part):
    """One reason not to believe a log."""

    code: str
    detail: str


class Integrity(Part):
    """Whether log and verdict agree with everything else that is known. Ours, never the official verdict."""

    verdict: Literal["ok", "suspect"]
    findings: list[Finding] = []


class TestCounts(Part):
    """Passed and listed tests of one list."""

    __test__ = False
    passed: int
    total: int


class GradeRecord(Record):
    """What the official files do not say about a grade."""

    file: ClassVar[str] = "grade.json"
    place: ClassVar[Place] = Place.UNIT
    instance_id: str
    attempt: int
    outcome: Outcome
    resolved: bool
    """The official verdict."""
    official_failure_reason: str | None = None
    """infra_failure_reason of the official report, advisory."""
    fail_to_pass: TestCounts | None = None
    pass_to_pass: TestCounts | None = None
    failing_tests: list[str] = []
    """Listed tests that did not pass, F2P first."""
    apply_command: str | None = None
    """Which command of the chain took the patch."""
    evidence: Evidence | None = None
    integrity: Integrity
    machine: Machine | None = None
    """None where nothing ran (an empty patch)."""
    seconds: dict[str, float] = {}
    """Stage -> seconds: create, apply, tests, grade."""
    patch_sha256: str
    versions: dict[str, str]

    @property
    def word(self) -> str:
        """The outcome."""
        return self.outcome.value


# -- failures --------------------------------------------------------------------------------------------------------


class FailureClass(StrEnum):
    """Whose failure it was, when it was not the agent's."""

    SANDBOX_CREATE = "sandbox_create"
    SANDBOX_LOST = "sandbox_lost"
    UNSCHEDULABLE = "unschedulable"
    ADMISSION = "admission"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    IMAGE_PULL = "image_pull"
    IMAGE_MISSING = "image_missing"
    EXEC = "exec"
    STORAGE = "storage"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_DISK = "out_of_disk"
    TEST_ENVIRONMENT = "test_environment"
    STEP_KILLED = "step_killed"
    STEP_TIMEOUT = "step_timeout"
    STOPPED = "stopped"
    """Nobody's: the run was stopped in the midst of it. The unit was not run, and did not fail."""
    CONFIG = "config"
    BUG = "bug"


class Failure(Record):
    """What a failed try leaves."""

    file: ClassVar[str] = "failure.json"
    place: ClassVar[Place] = Place.TRY
    step: str
    instance_id: str
    attempt: int
    failure_class: FailureClass
    reason: str
    """One line for a person."""
    detail: str = ""
    """What the infrastructure said, verbatim, or the traceback."""
    exit_code: int
    occurred_at: str
    seconds: float = 0.0
    resource_factor: float = Field(default=1.0, gt=0)


def key(datum: type[Record] | type[Raw], run: str, instance: str = "", attempt: int = 0, name: str = "") -> str:
    """The store key of a datum: one layout, the same in a folder and in a bucket."""
    return f"{datum.place.value}/{datum.file}".format(run=run, instance=instance, attempt=attempt, name=name)
