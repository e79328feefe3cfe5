"""What grading leaves of a unit: the official files, byte for byte, and what they do not say."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.record import Part, Place, Raw
from swe_argo.steps.contracts.timed import Timed

_SHOWN = 3


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
    paths: tuple[str, ...] = Field(default=(), exclude=True)
    """The files of which the detail names some; not stored."""

    @classmethod
    def of_paths(cls, code: str, paths: Collection[str]) -> Finding:
        """Return a finding on some files."""
        listed = sorted(paths)
        first = ", ".join(path[:120] for path in listed[:_SHOWN])
        more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
        return cls(code=code, detail=first + more, paths=tuple(listed))

    def without(self, paths: Collection[str]) -> Finding | None:
        """Return the finding on its other files; None if there are none. A finding on no file stays."""
        left = set(self.paths).difference(paths)
        return self if len(left) == len(self.paths) else self.of_paths(self.code, left) if left else None


class Integrity(Part):
    """Whether a verdict can be believed. Ours, never the official verdict.

    ``ok``: the log is clean, and a resolved patch of an agent is confirmed. ``unconfirmed``: the log is clean, and no
    confirmation says that the patch resolves. ``suspect``: the confirmation contradicts the verdict, or the log or the
    files prove tampering.
    """

    verdict: Literal["ok", "unconfirmed", "suspect"]
    findings: list[Finding] = []


class ConfirmationOutcome(StrEnum):
    """The result of a confirmation by twin tests."""

    CONFIRMED = "confirmed"
    """All runs came out as drawn, and every FAIL_TO_PASS test had a strong site."""
    PARTLY = "partly"
    """All runs came out as drawn, but not every FAIL_TO_PASS test had a strong site."""
    CONTRADICTED = "contradicted"
    """Tests with a wrong expected value passed, which the reference patch fails."""
    NOT_CONFIRMED = "not_confirmed"
    """The patch did not pass the unchanged tests again, broke its sandbox, or left no readable log."""
    UNAVAILABLE = "unavailable"
    """No FAIL_TO_PASS test of this instance has a constant that can be changed."""
    FLAKY = "flaky"
    """Older releases: listed tests did not pass a second time."""


class TestCounts(Part):
    """Passed and listed tests of one list."""

    __test__ = False
    passed: int
    total: int


class Confirmation(Part):
    """Further runs of a resolved patch in fresh sandboxes, in which some tests expect a wrong value."""

    outcome: ConfirmationOutcome
    reason: str = ""
    """The observation in a sentence; empty if confirmed."""
    is_unstable: bool = False
    """Whether the reference patch did not come out as drawn either, in every draw."""
    tests_with_site: int = 0
    """FAIL_TO_PASS tests that were originals and twins in these runs."""
    fail_to_pass: int = 0
    """All FAIL_TO_PASS tests of the instance."""
    runs: int = 0
    """Test runs of the patch."""
    reference_runs: int = 0
    """Test runs of the reference patch: to validate sites, and to explain surprises."""
    chance: float | None = None
    """An upper bound of the chance to pass all runs by guessing."""
    tests: list[str] = []
    """The tests that did not come out as drawn, at most 20."""
    excerpt: str = ""
    """If not confirmed: the log lines of those tests, and the end of the log."""
    neighbours: TestCounts | None = None
    """Tests with other inputs, and how many of them came out right; None if none could be made or tried."""
    general: bool | None = None
    """Whether the patch passed with other inputs, too; None if that was not tried, or the reference patch failed."""
    general_reason: str = ""
    """If not general: the observation in a sentence."""
    seconds: float = 0.0
    files: list[str] = []
    """Older releases: test files that got further tests."""
    flipped: list[str] = []
    """Older releases: listed tests that passed officially and not here."""


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
    confirmation: Confirmation | None = None
    """None if none was tried."""
    machine: Machine | None = None
    """None where nothing ran (an empty patch)."""
    seconds: dict[str, float] = {}
    """Stage -> seconds: create, apply, tests, grade, and confirmation if there was one."""
    patch_sha256: str
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _reward_of_resolved(cls, fields: Any) -> Any:
        """Records from before there were rewards have none."""
        if isinstance(fields, dict) and "reward" not in fields:
            return {**fields, "reward": float(fields.get("resolved") is True)}
        return fields

    @model_validator(mode="before")
    @classmethod
    def _confirmation_of_older_releases(cls, fields: Any) -> Any:
        """Read ``counter_proof`` as the confirmation if there is no other."""
        if isinstance(fields, dict) and "counter_proof" in fields:
            counter_proof = fields["counter_proof"]
            rest = {name: value for name, value in fields.items() if name != "counter_proof"}
            return {"confirmation": counter_proof, **rest}
        return fields

    @model_serializer(mode="wrap")
    def _with_counter_proof(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the confirmation under its earlier name too, for one more release."""
        fields: dict[str, Any] = write(self)
        return {**fields, "counter_proof": fields["confirmation"]}

    @property
    def is_suspect(self) -> bool:
        """Whether there is a reason not to believe the verdict: tampering, or a confirmation that contradicts it."""
        contradicted = self.confirmation is not None and self.confirmation.outcome is ConfirmationOutcome.CONTRADICTED
        return self.integrity.verdict == "suspect" or contradicted

    @property
    def standing(self) -> tuple[str, str]:
        """Integrity and outcome of the confirmation for ``decide_reward``, which takes unstable as unavailable."""
        integrity = "suspect" if self.is_suspect else self.integrity.verdict
        if self.confirmation is None:
            return integrity, ""
        unstable = self.confirmation.is_unstable and self.confirmation.outcome is ConfirmationOutcome.NOT_CONFIRMED
        return integrity, (ConfirmationOutcome.UNAVAILABLE if unstable else self.confirmation.outcome).value

    @property
    def word(self) -> str:
        """The outcome."""
        return self.outcome.value


RewardRule = Literal["by-outcome", "zero", "drop", "keep"]
"""The reward of rollouts whose verdict is suspect or unconfirmed. zero: 0. drop: absent from their group. keep: that of
the official verdict. by-outcome: see ``decide_reward``."""


def decide_reward(
    reward: float, integrity: str, confirmation: str, *, suspect: RewardRule, unconfirmed: RewardRule
) -> float | None:
    """Return the reward to learn from; None if the rollout is dropped from its group.

    Args:
        reward: That of the official verdict.
        integrity: That of ``GradeRecord.standing``.
        confirmation: That of ``GradeRecord.standing``; empty if none was tried.
        suspect: The rule for suspect verdicts; by-outcome is zero.
        unconfirmed: The rule for unconfirmed verdicts; by-outcome is drop for not_confirmed and keep for all others.
    """
    if integrity == "ok":
        return reward
    if integrity == "suspect":
        rule, usual = suspect, "zero"
    else:
        rule, usual = unconfirmed, "drop" if confirmation == ConfirmationOutcome.NOT_CONFIRMED else "keep"
    return {"zero": 0.0, "drop": None}.get(usual if rule == "by-outcome" else rule, reward)
