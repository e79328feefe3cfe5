"""Clusters of failures by a common failing test, error line or stop reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.labels import STOPS
from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.stored_run import Standing
from swe_argo.steps.reports.text.formatting import count

MAX_CLUSTERS = 8
MIN_UNITS = 2
"""Minimum number of units in a cluster."""
MAX_UNITS = 5
"""Maximum number of units named per cluster."""


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """Failed units with a common feature."""

    name: str
    number: int
    units: list[UnitFigures]
    """The first units."""


def cluster_failures(units: Sequence[UnitFigures]) -> list[tuple[str, list[FailureCluster]]]:
    """Return (feature, clusters by size) for features with clusters; units that were not run are not failures."""
    failures = [unit for unit in units if unit.standing not in (Standing.RESOLVED, Standing.NOT_RUN)]
    kinds = [
        ("Failing test", _by_tests(failures)),
        ("Error", _by_error(failures)),
        ("Stop reason", _by_stop(failures)),
    ]
    return [(name, clusters) for name, clusters in kinds if clusters]


_VARIABLE_PARTS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
"""Addresses and numbers, which differ between messages of the same error."""


def _by_tests(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    """Return clusters by failing test; tests that fail in the same units are one cluster."""
    failed_by: dict[str, list[int]] = defaultdict(list)
    for place, unit in enumerate(failures):
        for test in dict.fromkeys(unit.failing_tests):
            failed_by[test].append(place)
    tests_of: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for test, places in failed_by.items():
        if len(places) >= MIN_UNITS:
            tests_of[tuple(places)].append(test)
    groups = {}
    for shared_places, tests in tests_of.items():
        more = f" and {count(len(tests) - 1, 'more test')}" if len(tests) > 1 else ""
        groups[f"{tests[0]}{more}"] = [failures[place] for place in shared_places]
    return _largest(groups)


def _by_error(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    """Return clusters by error line; lines that differ only in numbers are one cluster, named after the first."""
    groups: dict[str, list[UnitFigures]] = defaultdict(list)
    names: dict[str, str] = {}
    for unit in failures:
        if unit.error:
            kind = _VARIABLE_PARTS.sub("0", unit.error)
            groups[names.setdefault(kind, unit.error)].append(unit)
    return _largest(groups)


def _by_stop(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    """Return clusters by stop reason, of agents that did not finish by themselves."""
    groups: dict[str, list[UnitFigures]] = defaultdict(list)
    for unit in failures:
        if unit.stop not in ("", StopReason.FINISHED):
            groups[STOPS[unit.stop].name if unit.stop in STOPS else unit.stop].append(unit)
    return _largest(groups)


def _largest(groups: Mapping[str, Sequence[UnitFigures]]) -> list[FailureCluster]:
    """Return the largest groups as clusters."""
    shared = sorted((item for item in groups.items() if len(item[1]) >= MIN_UNITS), key=lambda item: -len(item[1]))
    return [FailureCluster(name, len(units), [*units[:MAX_UNITS]]) for name, units in shared[:MAX_CLUSTERS]]
