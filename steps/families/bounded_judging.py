"""Judging of a log by a family's rule, with limits of memory, time and result size.

Test output is untrusted: a log may name millions of tests, and some parsers take hours for a line of blanks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from swe_argo.steps.families.family import load_family
from swe_argo.steps.families.family_verdict import FamilyVerdict
from swe_argo.steps.grading.bounded import run_in_bounds, serve_in_bounds

MOST = 20_000
"""Maximum test names of a result; the largest suite of SWE-smith's profiles has fewer."""


HERE_BYTES = 4 << 10
"""Size of a log that every parser reads quickly, with any content."""


def judge_bounded(family: str, source: dict[str, Any], log: bytes) -> FamilyVerdict:
    """Return the verdict on a log. Raises MemoryError if judging exceeds its bounds."""
    if len(log) <= HERE_BYTES:
        return _judge((family, source, log))
    return cast(FamilyVerdict, run_in_bounds("swe_argo.steps.families.bounded_judging", (family, source, log)))


def _judge(job: tuple[str, dict[str, Any], bytes]) -> FamilyVerdict:
    """Return the family's verdict for a job: its name, the row's columns for grading, and the log."""
    family, source, log = job
    return limit_tests(load_family(family).judge(log.decode(errors="replace"), source))  # type: ignore[attr-defined]


def limit_tests(verdict: FamilyVerdict) -> FamilyVerdict:
    """Return a verdict with at most MOST tests; expected tests are kept first."""
    differences = verdict.differences
    if len(differences) > MOST:
        differences = dict(islice(sorted(differences.items(), key=lambda item: item[1].expected is None), MOST))
    statuses = verdict.statuses
    if len(statuses) > MOST:
        statuses = dict(islice(sorted(statuses.items(), key=lambda item: item[0] in verdict.differences), MOST))
    # `reports_failure` stays that of all statuses.
    return replace(verdict, statuses=statuses, differences=differences, reports_failure=verdict.reports_failure)


if __name__ == "__main__":
    serve_in_bounds(Path(sys.argv[1]), _judge)
