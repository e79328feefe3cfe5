"""Marks of endpoint failures in a run's store, shared by the solve steps of all pods.

A mark is an object ``runs/<run>/endpoint/<kind>/<instance>/<attempt>.json``: a Failure that says why this unit is no
score of the agent. Plan removes them all, because the same command tries again.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import Place
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import EARLY_TURNS, ENDED_BY_ENDPOINT, MALFORMED_REQUEST, StopReason
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.errors import EXIT_INFRA, ConfigError, StepError, one_line
from swe_argo.steps.store.protocol import Store

log = logging.getLogger(__name__)
UnitName = tuple[str, int]
"""Instance and attempt."""
ACCESS, FOREIGN, EARLY, REFUSED = "access", "foreign", "early", "refused-"
"""Kinds: the endpoint denied access; something other than its API answered; it ended the conversation at turn 1 or 2;
it refused the conversation, with the digest of its message appended."""
ENOUGH = 3
"""Threshold for units with the same refusal, and for units in a row without an answer of the API."""


@dataclass(frozen=True)
class Mark:
    """A mark, parsed from its key."""

    key: str
    kind: str
    unit: UnitName


def read_marks(store: Store, run: str) -> list[Mark]:
    """Return the marks of a run. Raises InfraError."""
    prefix = f"{Place.RUN.format(run=run)}/endpoint/"
    marks = []
    for key in store.keys(prefix):
        kind, instance, file = key.removeprefix(prefix).split("/")
        marks.append(Mark(key, kind, (instance, int(file.removesuffix(".json")))))
    return marks


def retracted_units(marks: Iterable[Mark], solved: set[UnitName]) -> dict[UnitName, Mark]:
    """Return the units whose end is the endpoint's failure and no score, each with the mark that says why.

    These are units refused with the same message as enough others, and early ends if they are half of the solved units.
    """
    kinds: dict[str, dict[UnitName, Mark]] = defaultdict(dict)
    for mark in marks:
        kinds[mark.kind][mark.unit] = mark
    retracted: dict[UnitName, Mark] = {}
    for kind, units in kinds.items():
        if kind.startswith(REFUSED) and len(units) >= ENOUGH:
            retracted |= units
    early = kinds[EARLY]
    return retracted | early if 2 * len(early) >= len(solved | early.keys()) else retracted


def read_retracted(store: Store, run: str) -> dict[UnitName, Mark]:
    """Return the units of a run whose end is the endpoint's failure, as ``retracted_units``. Raises InfraError."""
    marks = read_marks(store, run)
    return retracted_units(marks, solved_units(run, store.keys(f"{Place.RUN.format(run=run)}/units/"))) if marks else {}


def solved_units(run: str, keys: Iterable[str]) -> set[UnitName]:
    """Return the solved or graded units among the keys of the run's units."""
    prefix, files = f"{Place.RUN.format(run=run)}/units/", (SolveRecord.file, GradeRecord.file)
    parts = [key.removeprefix(prefix).split("/") for key in keys]
    return {(one[0], int(one[1])) for one in parts if len(one) == 3 and one[2] in files and one[1].isdigit()}


class UnitMarks:
    """The marks of one unit's solve among those of its run."""

    def __init__(self, store: Store, run: str, instance: str, attempt: int) -> None:
        self._store, self._run, self._unit = store, run, (instance, attempt)

    def begin(self) -> None:
        """Remove the marks of an earlier solve. Raises ConfigError if no further unit may start, InfraError."""
        marks = read_marks(self._store, self._run)
        if closed := next((mark for mark in marks if mark.kind == ACCESS), None):
            raise ConfigError(
                f"not begun: the endpoint gave no access, first seen at {closed.unit[0]}/{closed.unit[1]}",
                failure_class=FailureClass.STOPPED,
            )
        stale = [mark.key for mark in marks if mark.unit == self._unit and mark.kind != FOREIGN]
        self._store.delete_many(stale)

    def end(self, reason: StopReason, answers: int, words: str) -> None:
        """Record the end of a solve. Raises ConfigError if enough other units were refused with the same message.

        Args:
            reason: Why the agent stopped.
            answers: Number of answers in its conversation.
            words: The endpoint's message, if it ended the conversation.
        """
        alike = 0
        try:
            if reason is StopReason.REQUEST_REFUSED and words and not words.startswith(MALFORMED_REQUEST):
                why = f"the endpoint refused the conversation in the same words as others: {words}"
                kind = REFUSED + hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:16]
                alike = self._put(kind, StepError(FailureClass.MODEL_ACCESS, why, detail=words))
            if reason in ENDED_BY_ENDPOINT and answers < EARLY_TURNS and alike < ENOUGH:
                why = f"the endpoint ended the conversation at turn {answers + 1} ({reason.value}): {words}"
                self._put(EARLY, StepError(FailureClass.MODEL, why, detail=words))
            if answers:  # an answer ends the row of units without one
                marks = read_marks(self._store, self._run)
                self._store.delete_many([mark.key for mark in marks if mark.kind == FOREIGN])
        except StepError as error:  # a failed mark must not lose the solve
            log.warning("how the endpoint ended this unit is not marked: %s", error)
        if alike >= ENOUGH:
            why = f"the endpoint refused {alike} units in the same words ({one_line(words, 200)}): mend what it refuses"
            raise ConfigError(why, failure_class=FailureClass.MODEL_ACCESS, detail=words)

    def fail(self, error: StepError, *, foreign: bool) -> StepError:
        """Return the error of a failed solve: no access after enough units in a row without an answer of the API."""
        try:
            if foreign and self._put(FOREIGN, error) >= ENOUGH:
                row = f"{error.reason}; {ENOUGH} units in a row"
                error = ConfigError(row, failure_class=FailureClass.MODEL_ACCESS, detail=error.detail)
            if error.failure_class is FailureClass.MODEL_ACCESS:
                self._put(ACCESS, error)
        except StepError as trouble:
            log.warning("how the endpoint failed this unit is not marked: %s", trouble)
        return error

    def _put(self, kind: str, error: StepError) -> int:
        """Write a mark. Returns the number of units that have one of this kind."""
        instance, attempt = self._unit
        failure = Failure(
            step="solve",
            instance_id=instance,
            attempt=attempt,
            failure_class=error.failure_class,
            reason=one_line(error.reason, 500),
            detail=error.detail,
            exit_code=EXIT_INFRA,
            occurred_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        prefix = f"{Place.RUN.format(run=self._run)}/endpoint/{kind}/"
        self._store.put(f"{prefix}{instance}/{attempt}.json", failure.to_bytes())
        return len(self._store.keys(prefix))
