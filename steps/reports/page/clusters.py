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

CLUSTERS_SHOWN = 8
LEAST = 2
"""Minimum number of units in a cluster."""
UNITS_NAMED = 5


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """Failures with a common feature."""

    name: str
    number: int
    units: list[UnitFigures]
    """The first units."""


def cluster_failures(units: Sequence[UnitFigures]) -> list[tuple[str, list[FailureCluster]]]:
    """Return (feature, clusters by size) for features with clusters; units that were not run are not failures."""
    failures = [unit for unit in units if unit.standing not in (Standing.RESOLVED, Standing.NOT_RUN)]
    kinds = [
        ("Failing test", _by_tests(failures)),
        ("Line of an error", _by_error(failures)),
        ("Agent stopped", _by_stop(failures)),
    ]
    return [(name, clusters) for name, clusters in kinds if clusters]


_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
"""Parts in which equal errors differ: addresses and numbers."""


def _by_tests(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    """Return clusters by failing test; tests that fail in the same units are one cluster."""
    failed_by: dict[str, list[int]] = defaultdict(list)
    for place, unit in enumerate(failures):
        for test in dict.fromkeys(unit.failing_tests):
            failed_by[test].append(place)
    tests_of: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for test, places in failed_by.items():
        if len(places) >= LEAST:
            tests_of[tuple(places)].append(test)
    groups = {}
    for together, tests in tests_of.items():
        more = f" and {count(len(tests) - 1, 'more test')}" if len(tests) > 1 else ""
        groups[f"{tests[0]}{more}"] = [failures[place] for place in together]
    return _largest(groups)


def _by_error(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    groups: dict[str, list[UnitFigures]] = defaultdict(list)
    names: dict[str, str] = {}
    for unit in failures:
        if unit.error:
            kind = _CHANGING.sub("0", unit.error)
            groups[names.setdefault(kind, unit.error)].append(unit)
    return _largest(groups)


def _by_stop(failures: Sequence[UnitFigures]) -> list[FailureCluster]:
    groups: dict[str, list[UnitFigures]] = defaultdict(list)
    for unit in failures:
        if unit.stop not in ("", StopReason.FINISHED):
            groups[STOPS[unit.stop].name if unit.stop in STOPS else unit.stop].append(unit)
    return _largest(groups)


def _largest(groups: Mapping[str, Sequence[UnitFigures]]) -> list[FailureCluster]:
    shared = sorted((item for item in groups.items() if len(item[1]) >= LEAST), key=lambda item: -len(item[1]))
    return [FailureCluster(name, len(units), [*units[:UNITS_NAMED]]) for name, units in shared[:CLUSTERS_SHOWN]]
