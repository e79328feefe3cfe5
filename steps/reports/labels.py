"""What classes are called in front of people, and in which order and colour they stand."""

from __future__ import annotations

from dataclasses import dataclass

from steps.reports.view import Standing


@dataclass(frozen=True)
class Label:
    """One standing."""

    name: str
    short: str
    meaning: str
    """One clause for the person who reads the page."""
    tone: str
    """CSS class; its colours are in the style sheet."""


STANDINGS: dict[str, Label] = {
    Standing.RESOLVED: Label("Resolved", "resolved", "every listed test passes", "resolved"),
    Standing.UNRESOLVED: Label("Unresolved", "unresolved", "some listed test does not pass", "unresolved"),
    Standing.EMPTY_PATCH: Label("No patch", "no patch", "nothing was changed, so nothing was run", "empty"),
    Standing.PATCH_FAILED: Label("Patch does not apply", "does not apply", "refused by git and by patch", "unapplied"),
    Standing.TESTS_TIMED_OUT: Label("Tests timed out", "timed out", "the tests did not end in time", "timeout"),
    Standing.LOG_UNREADABLE: Label("Log not gradeable", "not gradeable", "the log ends in no verdict", "unreadable"),
    Standing.NO_PREDICTION: Label(
        "No prediction", "no prediction", "the predictions leave this instance out", "absent"
    ),
    Standing.FAILED: Label("Infrastructure", "infrastructure", "no verdict: the world failed, not the agent", "infra"),
    Standing.NOT_RUN: Label("Not run", "not run", "no verdict yet", "waiting"),
}

STOP_REASONS = {"max_steps": "agent out of steps", "timeout": "agent out of time"}

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
    "total": "Whole unit",
}


def kind_phrase(kind: str) -> str:
    """What a run that measures no agent of ours says of itself; empty for an agent."""
    return {
        "reference": "Reference run: the dataset's own patches, to measure harness and machine.",
        "control": "Control run: an untouched repository. Nothing should be resolved.",
        "given": "Predictions made elsewhere: what their agent could see is not known here.",
        "replay": "Recorded actions performed again: no model was asked.",
    }.get(kind, "")
