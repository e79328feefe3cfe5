"""What grading leaves of a unit: the official files, byte for byte, and what they do not say."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from steps.contracts.machine import Machine
from steps.contracts.record import Part, Place, Raw
from steps.contracts.timed import Timed


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
    NO_REWARD = "no_reward"
    """The verifier of a task ended without a number: its own failure, or brought about by what it was to judge."""
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


class Confirmation(StrEnum):
    """What a counter-proof came to."""

    CONFIRMED = "confirmed"
    """The test that must fail was reported as failed and counted, the other one passed, the listed ones as before."""
    CONTRADICTED = "contradicted"
    """A test that must fail was not reported as failed, or one that must pass not as passed."""
    FLAKY = "flaky"
    """Both came out as they must, but listed tests did not pass a second time."""
    NOT_CONFIRMED = "not_confirmed"
    """It did not come to an end: a lost sandbox, a timeout, an order to stop."""
    UNAVAILABLE = "unavailable"
    """It cannot be made for this instance."""


class CounterProof(Part):
    """A second run of the same patch in a fresh sandbox, with tests in it whose outcome is known."""

    outcome: Confirmation
    reason: str = ""
    """What was seen, in a line; empty where it confirmed."""
    files: list[str] = []
    """Test files that got a test which must fail and one which must pass."""
    flipped: list[str] = []
    """Listed tests that passed officially and not here, at most 20."""
    excerpt: str = ""
    """Where it did not confirm: the lines put into the tests, the lines of the log that name them, and its end."""
    seconds: float = 0.0


class TestCounts(Part):
    """Passed and listed tests of one list."""

    __test__ = False
    passed: int
    total: int


class GradeRecord(Timed):
    """What the official files do not say about a grade."""

    file: ClassVar[str] = "grade.json"
    place: ClassVar[Place] = Place.UNIT
    instance_id: str
    attempt: int
    outcome: Outcome
    resolved: bool
    """The verdict of the family's own rule; SWE-bench's is the official one."""
    reward: float = 0.0
    """What the family's rule gives: 1 or 0 where it only knows resolved and not."""
    official_failure_reason: str | None = None
    """infra_failure_reason of the official report, advisory; of other families why the log holds no results, and of a
    reference that is run what went wrong there."""
    fail_to_pass: TestCounts | None = None
    pass_to_pass: TestCounts | None = None
    expected_tests: TestCounts | None = None
    """Tests that came out as expected, where a family expects some to fail."""
    failing_tests: list[str] = []
    """Listed tests that did not come out as they must, F2P first."""
    apply_command: str | None = None
    """Which command of the chain took the patch."""
    evidence: Evidence | None = None
    integrity: Integrity
    counter_proof: CounterProof | None = None
    """None where none was requested."""
    machine: Machine | None = None
    """None where nothing ran (an empty patch)."""
    seconds: dict[str, float] = {}
    """Stage -> seconds: create, apply, tests, grade, and counter_proof where there was one."""
    patch_sha256: str
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _reward_of_resolved(cls, fields: Any) -> Any:
        """Records from before there were rewards have none."""
        if isinstance(fields, dict) and "reward" not in fields:
            return {**fields, "reward": float(fields.get("resolved") is True)}
        return fields

    @property
    def is_suspect(self) -> bool:
        """Whether there is a reason not to believe the verdict: a finding, or a counter-proof that contradicts it."""
        contradicted = self.counter_proof is not None and self.counter_proof.outcome is Confirmation.CONTRADICTED
        return self.integrity.verdict == "suspect" or contradicted

    @property
    def word(self) -> str:
        """The outcome."""
        return self.outcome.value
