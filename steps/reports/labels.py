"""Display names of standings, stop reasons and stages, with their order and colours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swe_argo.steps.contracts.failure import OF_ENDPOINT, FailureClass
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.stored_run import Standing


@dataclass(frozen=True)
class StandingLabel:
    """The display names of one standing."""

    name: str
    short: str
    meaning: str
    """A clause for the reader of the page."""
    tone: str
    """CSS class; its colours are in the style sheet."""


STANDINGS: dict[str, StandingLabel] = {
    Standing.RESOLVED: StandingLabel("Resolved", "resolved", "every listed test passes", "resolved"),
    Standing.UNRESOLVED: StandingLabel("Unresolved", "unresolved", "some listed test does not pass", "unresolved"),
    Standing.EMPTY_PATCH: StandingLabel("No patch", "no patch", "nothing was changed, so nothing was run", "empty"),
    Standing.PATCH_FAILED: StandingLabel(
        "Patch does not apply", "does not apply", "refused by git and by patch", "unapplied"
    ),
    Standing.TESTS_TIMED_OUT: StandingLabel("Tests timed out", "timed out", "the tests did not end in time", "timeout"),
    Standing.LOG_UNREADABLE: StandingLabel(
        "Log not gradeable", "not gradeable", "the log ends in no verdict", "unreadable"
    ),
    Standing.NO_REWARD: StandingLabel(
        "No reward", "no reward", "the task's verifier wrote no number, twice", "unreadable"
    ),
    Standing.NO_PREDICTION: StandingLabel(
        "No prediction", "no prediction", "the predictions leave this instance out", "absent"
    ),
    Standing.FAILED: StandingLabel(
        "Infrastructure", "infrastructure", "no verdict: the world failed, not the agent", "infra"
    ),
    Standing.NOT_RUN: StandingLabel("Not run", "not run", "no verdict yet", "waiting"),
}


_ENDPOINT = StandingLabel(
    "Model endpoint", "model endpoint", "no verdict: the model's endpoint failed, not the agent", "infra"
)


def standing_label(standing: str, failure_class: str | None) -> StandingLabel:
    """Return the label of a unit's standing; for a failed unit it depends on the failure class. Raises KeyError."""
    return _ENDPOINT if standing == Standing.FAILED and failure_class in OF_ENDPOINT else STANDINGS[standing]


_BOTH = StandingLabel(
    "Infrastructure and model endpoint",
    "infrastructure and model endpoint",
    "no verdict: the world or the model's endpoint failed, not the agent",
    "infra",
)


def standing_labels(failures: Iterable[str]) -> dict[str, StandingLabel]:
    """Return the labels of the standings in a run; ``failures`` are the classes of its failures."""
    of_endpoint = {name in OF_ENDPOINT for name in failures}
    failed = {frozenset({True}): _ENDPOINT, frozenset({True, False}): _BOTH}.get(frozenset(of_endpoint))
    return STANDINGS | ({Standing.FAILED: failed} if failed else {})


@dataclass(frozen=True)
class StopLabel:
    """The display names of a stop reason."""

    name: str
    meaning: str


STOPS: dict[str, StopLabel] = {
    StopReason.FINISHED: StopLabel("finished", "it said that it was done, or had nothing more to do"),
    StopReason.MAX_STEPS: StopLabel("out of steps", "it finished only when it was told that its steps are used up"),
    StopReason.ABSOLUTE_STEPS: StopLabel("absolute steps", "it did not finish even then"),
    StopReason.TIMEOUT: StopLabel("out of time", "the time for one instance was over"),
    StopReason.CALL_TIMEOUT: StopLabel("calls too slow", "one call of the model took too long, again and again"),
    StopReason.CONTEXT_LIMIT: StopLabel("context limit", "the conversation reached the tokens that were set"),
    StopReason.CONTEXT_OVERFLOW: StopLabel("context overflow", "the endpoint refused the conversation as too long"),
    StopReason.REQUEST_REFUSED: StopLabel("request refused", "the endpoint refused what the conversation had become"),
    StopReason.TOKEN_LIMIT: StopLabel("out of tokens", "the tokens for one instance were used up"),
    StopReason.COST_LIMIT: StopLabel("out of money", "the money for one instance was used up"),
    StopReason.MALFORMED: StopLabel("malformed answers", "answer after answer held no call that could be made"),
    StopReason.EMPTY_ANSWER: StopLabel("empty answers", "answer after answer held nothing at all"),
    StopReason.REFUSAL: StopLabel("refusal", "the model refused to go on"),
    StopReason.CONTENT_FILTER: StopLabel("content filter", "the endpoint withheld the answer"),
    StopReason.SANDBOX_BROKEN: StopLabel("broke its machine", "it broke the machine that it worked in"),
    StopReason.AGENT_CRASHED: StopLabel("crashed", "the agent program ended with an exit code that says it failed"),
    StopReason.AGENT_KILLED: StopLabel("killed", "a signal ended the agent program, and no limit of ours"),
    StopReason.NO_CALLS: StopLabel("asked nothing", "the agent program ended without having asked the model"),
    StopReason.ERROR_LOOP: StopLabel("error loop", "the agent program asked again and again for what was refused"),
    StopReason.WAITING: StopLabel("waiting", "the agent program did nothing more, as if for a terminal or a person"),
    StopReason.OUTPUT_FLOOD: StopLabel("flood of output", "the agent program printed more than it may"),
    StopReason.HOME_FLOOD: StopLabel("full home", "the agent program wrote more into its HOME than it may"),
    StopReason.INTERRUPTED: StopLabel("interrupted", "the machine failed under it"),
}


def stop_phrase(reason: str) -> str:
    """Return the text beside a verdict, or the reason itself if this version does not know it."""
    return f"agent: {STOPS[reason].name}" if reason in STOPS else reason


ADVICE: dict[str, str] = {
    FailureClass.MODEL: "The model's endpoint failed beyond all retries: run it again when it is well, with a lower "
    "--llm-concurrency or more --num-retries.",
    FailureClass.MODEL_ACCESS: "The endpoint answers nobody any more (a revoked key, a used-up quota, a firewall) or "
    "refuses every conversation alike: mend that and start the same run again, it does what is missing.",
}
"""Failure class -> advice."""

STAGES = {
    "solve.queue": "Queue, agent",
    "solve.pull": "Image pull, agent",
    "solve.create": "Sandbox, agent",
    "solve.prepare": "Set-up",
    "solve.agent": "Agent",
    "solve.patch": "Taking the patch",
    "grade.queue": "Queue, grading",
    "grade.pull": "Image pull, grading",
    "grade.create": "Sandbox, grading",
    "grade.apply": "Applying the patch",
    "grade.tests": "Tests",
    "grade.grade": "Verdict",
    "grade.confirmation": "Confirmation",
    "grade.counter_proof": "Counter-proof",
    "total": "Whole unit",
}


def in_order(stages: Iterable[str]) -> list[str]:
    """Return the stages in the order in which they happen; unknown ones come first."""
    places = {stage: place for place, stage in enumerate(STAGES)}
    return sorted(stages, key=lambda stage: (places.get(stage, -1), stage))


def kind_phrase(kind: str) -> str:
    """Return the sentence about a run that measures no agent of ours; empty for an agent."""
    return {
        "reference": "Reference run: the dataset's own patches, to measure harness and machine.",
        "control": "Control run: an untouched repository. Nothing should be resolved.",
        "given": "Predictions made elsewhere: what their agent could see is not known here.",
        "regraded": "Patches of an earlier run, graded again.",
        "replay": "Recorded actions performed again: no model was asked.",
    }.get(kind, "")
