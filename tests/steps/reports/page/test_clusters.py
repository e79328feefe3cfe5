from __future__ import annotations

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.page.clusters import cluster_failures
from swe_argo.steps.reports.stored_run import Standing
from tests.steps.reports.page.figures_made_up import figures


def shown(*units: object) -> dict[str, list[tuple[str, int]]]:
    return {kind: [(one.name, one.number) for one in some] for kind, some in cluster_failures(units)}  # type: ignore[arg-type]


def test_tests_that_the_same_units_fail_are_one_cluster_the_largest_first() -> None:
    units = [figures("a", failing_tests=["t1", "t2", "t3"]), figures("b", failing_tests=["t1", "t2", "t3", "only"])]
    assert shown(*units, figures("c", failing_tests=["t3"])) == {
        "Failing test": [("t3", 3), ("t1 and 1 more test", 2)],
    }


def test_errors_that_differ_in_numbers_are_one_cluster() -> None:
    units = [figures(n, error=f"KeyError: 0x7f{n} of {n}") for n in ("1", "2")]
    assert shown(*units, figures("3", error="TypeError: x")) == {"Line of an error": [("KeyError: 0x7f1 of 1", 2)]}


def test_why_agents_stopped_counts_but_not_that_they_finished() -> None:
    units = [figures(str(n), stop=StopReason.MAX_STEPS) for n in range(7)]
    kinds = cluster_failures([*units, figures("8", stop=StopReason.FINISHED), figures("9", stop=StopReason.FINISHED)])
    assert [(kind, [(one.number, len(one.units)) for one in some]) for kind, some in kinds] == [
        ("Agent stopped", [(7, 5)])
    ]


def test_what_was_resolved_or_never_run_is_no_failure() -> None:
    same = {"failing_tests": ["t"], "error": "KeyError: x"}
    assert shown(*(figures(one, standing=one, **same) for one in (Standing.RESOLVED, Standing.NOT_RUN))) == {}  # type: ignore[arg-type]
