"""``summary.json``: every figure of the report for programs, each defined once."""

from __future__ import annotations

from typing import ClassVar, Literal

from swe_argo.steps.contracts.chain import PAGE
from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.families import SWEBENCH
from swe_argo.steps.contracts.record import Part, Place, Record, key
from swe_argo.steps.contracts.trajectory import DollarSum, Usage
from swe_argo.steps.reports.text.formatting import count


def _by_integrity(ok: int | None, unconfirmed: int, suspect: int) -> str:
    """Return ``7 ok, 1 unconfirmed, 1 suspect``; empty if nothing is counted, or by an older release."""
    counts = ((ok or 0, "ok"), (unconfirmed, "unconfirmed"), (suspect, "suspect"))
    return "" if ok is None else ", ".join(f"{number:,} {word}" for number, word in counts if number)


class Rate(Part):
    """Resolved of how many."""

    resolved: int
    graded: int
    """With a verdict."""
    total: int
    rate: float | None
    """resolved / total, also where some have no verdict; None when there is nothing."""
    low: float
    high: float
    """95 % interval of rate: Wilson score; of a headline over several attempts a bootstrap over instances."""
    ok: int | None = None
    """Resolved units with integrity ``ok``; None in figures of an older release."""
    unconfirmed: int = 0
    """Resolved units with integrity ``unconfirmed``."""
    suspect: int = 0
    """Resolved units with integrity ``suspect``."""
    neighbours: int = 0
    """Resolved units that were tried with neighbour inputs."""
    general: int = 0
    """Resolved units that passed neighbour inputs."""

    @property
    def by_integrity(self) -> str:
        """The resolved units by integrity: ``7 ok, 1 unconfirmed, 1 suspect``; empty if not known."""
        return _by_integrity(self.ok, self.unconfirmed, self.suspect)

    @property
    def word(self) -> str:
        """``9 of 12 resolved (7 ok, 1 unconfirmed, 1 suspect)``."""
        sentence = f"{self.resolved:,} of {self.total:,} resolved"
        sentence += f" ({self.by_integrity})" if self.by_integrity else ""
        return ", ".join(filter(None, [sentence, self.on_neighbours]))

    @property
    def on_neighbours(self) -> str:
        """``55 of 58 on neighbour inputs too``; empty if none was tried."""
        return f"{self.general:,} of {self.neighbours:,} on neighbour inputs too" if self.neighbours else ""


class GroupFigures(Part):
    """A rate of a part of the instances."""

    name: str
    rate: Rate


class AttemptFigures(Part):
    """One attempt at every instance."""

    attempt: int
    rate: Rate
    official: str
    """Name of its official summary."""


class PassAtK(Part):
    """The chance that at least one of k attempts resolves, averaged over instances."""

    k: int
    instances: int
    """With at least k attempts that have a verdict."""
    estimate: float
    low: float
    high: float
    """95 % bootstrap interval over instances."""


class Spread(Part):
    """How a measured quantity spreads over units; seconds.

    Of whole units (``total`` in ``seconds`` of the summary) only those with a verdict count, where there are any; the
    field ``total`` is of all.
    """

    units: int
    median: float
    p95: float
    most: float
    total: float


class Cost(Part):
    """What models took."""

    usage: Usage
    """Of everything, failed tries and plan's own call included."""
    planning: Usage = Usage()
    """Of plan's own call, which belongs to no unit."""
    failed_tries: Usage
    """Of failed tries alone."""
    sandboxes_usd: float | None = None
    """What a provider takes for the sandboxes of tries that succeeded; None where none does. In no other figure."""
    usd_per_resolved: DollarSum
    tokens_per_resolved: float | None


class IntegrityFigures(Part):
    """Whether the verdicts can be believed. Ours, never the official verdict."""

    suspect: int
    """All units with integrity ``suspect``, unresolved ones too."""
    findings: dict[str, int]
    """Code -> units."""
    units: list[str]
    """``instance_id/attempt`` of the suspect ones."""
    ok: int | None = None
    """Resolved units with integrity ``ok``; None in figures of an older release."""
    unconfirmed: int = 0
    """Resolved units with integrity ``unconfirmed``."""
    suspect_resolved: int = 0
    """Resolved units with integrity ``suspect``."""
    reasons: dict[str, int] = {}
    """Outcome of the confirmation -> unconfirmed resolved units; ``none`` if none was tried."""

    @property
    def resolved(self) -> str:
        """All resolved units by integrity: ``7 ok, 1 unconfirmed, 1 suspect``; empty if not known."""
        return _by_integrity(self.ok, self.unconfirmed, self.suspect_resolved)


class Unconfirmed(Part):
    """A resolved unit that no confirmation confirmed."""

    instance_id: str
    attempt: int
    outcome: str | None
    """partly, contradicted, not_confirmed or unavailable, of older releases flaky; None if none was tried."""
    reason: str
    tests_with_site: int = 0
    """FAIL_TO_PASS tests with a site."""
    fail_to_pass: int = 0
    """All FAIL_TO_PASS tests."""
    flipped: list[str] = []
    """Of older releases: listed tests that passed officially and not a second time, at most 20."""


class ConfirmationFigures(Part):
    """The confirmations of resolved units, over all attempts."""

    resolved: int
    confirmed: int
    share: float | None
    """confirmed / resolved; None if nothing is resolved."""
    outcomes: dict[str, int]
    """Outcome -> resolved units; ``none`` if none was tried."""
    seconds: float
    """The time of all confirmations together."""
    unconfirmed: list[Unconfirmed]
    tests_with_site: int = 0
    """FAIL_TO_PASS tests with a site, of the resolved units whose confirmation was tried."""
    fail_to_pass: int = 0
    """All FAIL_TO_PASS tests of these units."""


class FlippingUnit(Part):
    """A unit of which a failing test is known to flip."""

    instance_id: str
    attempt: int
    failing_tests: int
    flips: dict[str, tuple[int, int]]
    """Failing test -> times that it was seen, and that it flipped, in all runs of the store."""


class CanaryFigures(Part):
    """The reference patches that were graded before anything else, on the run's own machines."""

    resolved: list[str]
    failed: dict[str, str]
    """Instance -> outcome."""
    without_verdict: dict[str, str]
    """Instance -> why."""
    word: str
    """The same in a sentence."""


class StopFigures(Part):
    """A reason why agents stopped."""

    reason: str
    units: int
    resolved: int


class NoVerdict(Part):
    """A unit without a verdict, and why."""

    instance_id: str
    attempt: int
    failure_class: str | None
    """None when it was not run, or was under way when the run stopped."""
    reason: str


class Conditions(Part):
    """What a reader must know to compare this run with another."""

    agent: str
    kind: Literal["agent", "reference", "control", "given", "regraded", "replay"]
    """reference (gold) and control (idle) runs measure the harness and the machine, not an agent."""
    hints: bool
    """Whether an agent was shown the discussion of its issue."""
    solve_network: bool | None
    """Whether any agent could reach the network, as its sandbox recorded it; None where nothing was solved."""
    grading_network: bool
    timeout_s: int
    machines: list[str]
    """``backend, isolation`` as recorded."""
    selected: int
    """Instances."""
    selection: list[str]
    """What they were chosen by, as in ``k 3``; empty where the whole dataset is meant."""
    validation: str | None = None
    """The validation that instances were chosen by, where there is one."""
    unfit: dict[str, str] = {}
    """Selected instance that it does not call valid -> its class there."""
    unfit_kept: bool = False
    """Whether these were run all the same; else the denominator is without them."""
    not_gradeable: dict[str, str] = {}
    """Selected instance that cannot be graded -> why; the denominator is without it."""
    model: str | None = None
    """What was asked; None, and so the following, where no model was."""
    helper_model: str | None = None
    """What the helpers of an agent program asked, where it is another."""
    translated: str | None = None
    """The protocol of an agent program, in words, where its calls were translated to chat completions."""
    endpoint: str | None = None
    """Its address; None for the provider's own, or where the endpoint's address is not part of the spec."""
    format: Literal["function_calling", "text"] | None = None
    """How tools were called."""
    sampling: dict[str, str] = {}
    """temperature, and whatever else was asked for."""
    prompt_style: str | None = None
    instruction_template: str | None = None
    """Where it is not the agent's own."""
    scaffold_words: str | None = None
    """The file of the scaffold's words, where they are not its own."""
    iterative_attempts: int | None = None
    """The most tries inside an attempt, in iterative mode."""
    critic: str | None = None
    limits: dict[str, str] = {}
    """Those that are not the defaults: name -> ``value (default)``."""
    max_cost_usd: float | None = None
    """Of the whole run."""


class Summary(Record):
    """All figures of a run."""

    file: ClassVar[str] = "summary.json"
    place: ClassVar[Place] = Place.REPORT
    format: Literal["swe-argo-summary-1"] = "swe-argo-summary-1"
    run_id: str
    model: str
    created_at: str
    """When the run was planned."""
    tags: list[str] = []
    """Of the run's spec."""
    complete: bool
    """Every unit has a definitive verdict."""
    valid: bool = True
    """So many units have a verdict that the score is one."""
    early_ends: int = 0
    """Units whose conversation the model's endpoint ended at turn 1 or 2, in a run where that is so for half of them or
    more: they have no verdict, and the first of ``doubts`` says so."""
    headline: Rate
    """Of all attempts: its rate is pass@1, where an attempt without a verdict counts as not resolved."""
    attempts: list[AttemptFigures]
    families: list[str] = [SWEBENCH]
    """Whose rules graded."""
    mean_reward: float | None = None
    """Over the graded units, where any of their rewards is neither 0 nor 1."""
    pass_at: list[PassAtK]
    """Empty with one attempt."""
    units: int
    outcomes: dict[str, int]
    """Over all units: the outcomes, ``failed`` and ``not_run``."""
    stopped: dict[str, dict[str, int]]
    """Outcome -> stop reason -> units, where the agent did not finish of itself."""
    stops: list[StopFigures] = []
    """Every reason there is, in its own order."""
    failures: dict[str, int]
    """Class -> units that have no verdict because of it."""
    failed_tries: dict[str, int]
    """Class -> tries, also of units that got a verdict later."""
    without_verdict: list[NoVerdict]
    repositories: list[GroupFigures]
    """Of the first attempt, largest first."""
    difficulties: list[GroupFigures]
    """Of the first attempt, where the dataset says how hard an issue is."""
    seconds: dict[str, Spread]
    """``solve.agent`` and the like, ``total`` for all stages and failed tries of a unit."""
    cost: Cost
    integrity: IntegrityFigures
    confirmation: ConfirmationFigures | None = None
    """None if no unit has a confirmation: none was requested, or nothing is resolved."""
    counter_proof: ConfirmationFigures | None = None
    """``confirmation`` under its earlier name, for one more release."""
    canary: CanaryFigures | None = None
    """None where the run has none."""
    flipping: list[FlippingUnit] = []
    """Units of which a failing test is known to flip."""
    histories_verified: int | None
    """Solved units whose repository was proven to hold nothing newer than its head; None where nothing was solved."""
    histories: int | None
    conditions: Conditions
    dataset: DatasetLock
    versions: dict[str, str]
    notices: list[str]
    """Of the plan, and of this report."""
    how: list[str] = []
    """Who asked what and with which limits, in words."""
    doubts: list[str]
    """Everything that speaks against taking the headline at its face, in words; empty is green."""

    @property
    def score(self) -> Rate | None:
        """The headline of a valid run; None where there is no rate to show."""
        return self.headline if self.valid and self.headline.rate is not None else None

    @property
    def why_no_score(self) -> str:
        """Why the run has no score, in a sentence; empty where it has one."""
        if self.valid:
            return ""
        missing, units = len(self.without_verdict), count(self.units, "unit")
        if not self.failures:
            return f"Stopped after {self.units - missing:,} of {units}. No score yet."
        return f"INVALID, no score: {missing:,} of {units} without a verdict."

    @property
    def graders(self) -> str:
        """Whose rules the verdicts are of."""
        swebench = f"swebench {self.versions.get('swebench', 'unknown')}"
        return ", ".join(swebench if family == SWEBENCH else f"{family}'s own rule" for family in self.families)

    @property
    def word(self) -> str:
        """The headline, with integrity if any resolved unit is not ok."""
        rate = self.headline
        trust = f" ({rate.by_integrity})" if rate.ok not in (None, rate.resolved) else ""
        attempts = " attempts" if len(self.attempts) > 1 else ""
        return self.why_no_score or f"resolved {rate.resolved} of {rate.total}{attempts}{trust}"


def page_key(run: str) -> str:
    """The store key of a run's page."""
    return key(Summary, run).replace(Summary.file, PAGE)
