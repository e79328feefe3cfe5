"""A run in memory: per unit what the report says of it, and no more than that."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from swe_argo.steps.contracts.data import Plan, RunFile, Stage
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.families import SWEBENCH
from swe_argo.steps.contracts.redone import Redone, is_kept
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Trajectory, Usage
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome
from swe_argo.steps.reports.text.visible import NOTHING, Excerpt


class Standing(StrEnum):
    """How a unit stands: one of the definitive outcomes, or no verdict."""

    RESOLVED = Outcome.RESOLVED
    UNRESOLVED = Outcome.UNRESOLVED
    EMPTY_PATCH = Outcome.EMPTY_PATCH
    PATCH_FAILED = Outcome.PATCH_FAILED
    TESTS_TIMED_OUT = Outcome.TESTS_TIMED_OUT
    LOG_UNREADABLE = Outcome.LOG_UNREADABLE
    NO_REWARD = Outcome.NO_REWARD
    NO_PREDICTION = Outcome.NO_PREDICTION
    FAILED = "failed"
    """No verdict: the world, the request or this project failed."""
    NOT_RUN = "not_run"
    """No verdict: its turn never came, or it was under way when the run stopped."""


NO_VERDICT = (Standing.FAILED, Standing.NOT_RUN)


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A failed try and what it used up."""

    failure: Failure
    usage: Usage
    name: str = ""
    """Its folder's."""
    files: tuple[str, ...] = ()
    """Names in that folder."""


@dataclass(frozen=True, slots=True)
class KnownFlip:
    """A test that did not come out alike each time that the same patch was graded."""

    test: str
    seen: int
    """Gradings of patches that were graded more than once."""
    flipped: int
    """Of these, those that came out as fewer did."""
    last_seen: str


@dataclass(frozen=True, slots=True)
class OfficialResult:
    """What the official files of one unit say, as swebench's make_run_report reads them."""

    completed: bool
    """``report.json`` exists."""
    resolved: bool | None
    """Its verdict; None when there is no such file or it cannot be read."""
    reason: tuple[str, str] | None
    """(reason, tier) of the logs of a unit that is not resolved, by swebench's own signatures."""


NO_REPORT = OfficialResult(completed=False, resolved=None, reason=None)


@dataclass(slots=True)
class StoredUnit:
    """One attempt at one instance."""

    instance_id: str
    attempt: int
    repo: str
    begins: Stage
    title: str = ""
    """First line of the issue."""
    issue: str = ""
    """Its first characters, as the agent was given them."""
    issue_left_out: int = 0
    """Characters after them."""
    difficulty: str | None = None
    family: str = SWEBENCH
    grade: GradeRecord | None = None
    """With at most SHOWN_TESTS failing tests; failing_tests counts them all."""
    failing_tests: int = 0
    flips: list[KnownFlip] = field(default_factory=list)
    """Of its failing tests, those that the store has seen flip."""
    solve: SolveRecord | None = None
    patch: bytes | None = None
    official: OfficialResult = NO_REPORT
    log_tail: Excerpt = NOTHING
    log_name: str = ""
    """The file log_tail is of."""
    tries: list[FailedTry] = field(default_factory=list)
    """Failed ones, oldest first."""
    redone: list[Redone] = field(default_factory=list)
    """Earlier verdicts that a person had sought again, oldest first."""
    earlier_grades: list[GradeRecord] = field(default_factory=list)
    """Theirs, in no order; left out are those with more failing tests than are kept."""
    unexplained: Usage = field(default_factory=Usage)
    """Of tries that left a trajectory and no failure: killed before anybody could say why."""
    files: tuple[str, ...] = ()
    """Names in the unit's folder."""
    trajectories: tuple[str, ...] = ()
    """Names in the unit's folder, those below ``tries/`` included."""
    page: str = ""
    """Name of its own page in the folder of the report; empty where it has none."""
    turns: int | None = None
    """Answers of the agent that the trajectory tells of; None where there is none that can be read."""
    model_answers: int = 0
    """Those of the turns for which a model was asked."""
    useless_answers: int = 0
    """Those of the model's answers that held nothing the agent expects."""
    endpoint: str = ""
    """Whom it asked, as the trajectory tells."""
    useless_answer: str = ""
    """How the last useless answer with any text begins."""
    retracted: Failure | None = None
    """Why its verdict does not count, where the model's endpoint ended its conversation; it has no grade here then."""

    @property
    def standing(self) -> Standing:
        """The outcome, else why there is none."""
        if self.grade is not None:
            return Standing(self.grade.outcome.value)
        return Standing.FAILED if self.failure is not None else Standing.NOT_RUN

    @property
    def failure(self) -> Failure | None:
        """The newest failure, unless the step it stopped has succeeded since, the unit was begun anew by --redo since,
        or it is that the run was stopped.

        None where there is a verdict.
        """
        if self.retracted is not None:
            return self.retracted
        if self.grade is not None or not self.tries:
            return None
        newest = self.tries[-1].failure
        past = (newest.step == "solve" and self.solve is not None) or any(
            newest.occurred_at <= earlier.at for earlier in self.redone
        )
        return None if past or newest.failure_class is FailureClass.STOPPED else newest

    @property
    def newest_trajectory(self) -> str:
        """Of ``trajectories``; where no try succeeded, that of the last try which left one; empty where there is none.

        Those of verdicts that were put away are of the past: the unit has begun anew since.
        Nobody knows when a try was killed: it comes after those that say when they failed.
        """
        tries = [f"tries/{failed_try.name}/{Trajectory.file}" for failed_try in reversed(self.tries)]
        ranked = [Trajectory.file, *tries, *sorted(name for name in self.trajectories if not is_kept(name))]
        return next((name for name in ranked if name in self.trajectories), "")

    @property
    def suspect(self) -> bool:
        """Whether the verdict is not to be believed."""
        return self.grade is not None and self.grade.integrity.verdict == "suspect"

    @property
    def usage(self) -> Usage:
        """Of the solve that counts, of those that were done again, and of all failed tries."""
        done = [self.solve.usage] if self.solve else []
        return add_usage([*done, *(earlier.usage for earlier in self.redone), self.wasted])

    @property
    def wasted(self) -> Usage:
        """Of the failed tries alone, without what the solve that counts took over from them."""
        all_of_them = add_usage([*(failed_try.usage for failed_try in self.tries), self.unexplained])
        continued = self.solve.continued if self.solve else None
        return all_of_them if continued is None else all_of_them - continued.usage

    @property
    def seconds(self) -> dict[str, float]:
        """``solve.agent`` -> seconds, for every stage of the tries that succeeded."""
        stages: dict[str, float] = {}
        for step, record in (("solve", self.solve), ("grade", self.grade)):
            if record is not None:
                stages |= {f"{step}.{stage}": seconds for stage, seconds in record.seconds.items()}
        return stages

    @property
    def total_s(self) -> float:
        """Seconds in all stages, also of what was done again, and in failed tries; queues are not in it."""
        past = [one.failure.seconds for one in self.tries] + [earlier.seconds for earlier in self.redone]
        return sum(self.seconds.values()) + sum(past)

    @property
    def sandboxes_usd(self) -> float | None:
        """What the sandboxes of the tries that succeeded cost, from when they were there; None where nobody was paid.

        Of failed tries nobody knows for how long they had one.
        """
        costs = [
            machine.usd_per_hour * sum(record.seconds.get(stage, 0.0) for stage in stages) / 3600
            for record, stages in ((self.solve, _SOLVING), (self.grade, _GRADING))
            if record is not None and (machine := record.machine) is not None and machine.usd_per_hour is not None
        ]
        return sum(costs) if costs else None


_SOLVING = ("prepare", "agent", "patch")
_GRADING = ("apply", "tests", "confirmation", "counter_proof")
"""The stages in which a sandbox is there: not those of waiting for one, or of reading a log."""


def add_usage(parts: list[Usage]) -> Usage:
    """The sum; the cost is None where no call has a known price."""
    return sum(parts, Usage())


@dataclass(frozen=True)
class CanaryResult:
    """The reference patches that a run had graded first."""

    resolved: list[str]
    failed: dict[str, str]
    """Instance -> outcome: there the machines, or the images, are not what the dataset takes."""
    without_verdict: dict[str, str]
    """Instance -> why; says nothing of the machines."""
    grades: list[GradeRecord] = field(default_factory=list)
    """The records of those that have a verdict."""


@dataclass(slots=True)
class StoredRun:
    """A run as it lies in the store, finished or not."""

    run: RunFile
    plan: Plan | None
    """None when the run stopped before it was planned."""
    units: list[StoredUnit]
    """In the order of the plan."""
    unreadable: list[str]
    """Keys whose content could not be understood."""
    canary: CanaryResult | None = None

    def attempt(self, number: int) -> list[StoredUnit]:
        """The units of one attempt."""
        return [unit for unit in self.units if unit.attempt == number]

    @property
    def attempts(self) -> list[int]:
        """Numbers of the attempts, from 1; at least the first."""
        return sorted({1, *(unit.attempt for unit in self.units)})
