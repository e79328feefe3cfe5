from __future__ import annotations

from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.reports.page.clusters import cluster_failures
from swe_argo.steps.reports.stored_run import Standing
from tests.steps.reports.page.figures_made_up import figures


def sizes(*units: object) -> dict[str, list[tuple[str, int]]]:
    return {kind: [(cluster.name, cluster.number) for cluster in some] for kind, some in cluster_failures(units)}  # type: ignore[arg-type]


def test_clusters_group_tests() -> None:
    units = [figures("a", failing_tests=["t1", "t2", "t3"]), figures("b", failing_tests=["t1", "t2", "t3", "only"])]
    assert sizes(*units, figures("c", failing_tests=["t3"])) == {
        "Failing test": [("t3", 3), ("t1 and 1 more test", 2)],
    }


def test_clusters_ignore_numbers() -> None:
    units = [figures(n, error=f"KeyError: 0x7f{n} of {n}") for n in ("1", "2")]
    assert sizes(*units, figures("3", error="TypeError: x")) == {"Error": [("KeyError: 0x7f1 of 1", 2)]}


def test_clusters_count_stop_reasons() -> None:
    units = [figures(str(n), stop=StopReason.MAX_STEPS) for n in range(7)]
    kinds = cluster_failures([*units, figures("8", stop=StopReason.FINISHED), figures("9", stop=StopReason.FINISHED)])
    assert [(kind, [(cluster.number, len(cluster.units)) for cluster in some]) for kind, some in kinds] == [
        ("Stop reason", [(7, 5)])
    ]


def test_clusters_need_failures() -> None:
    more = {"failing_tests": ["t"], "error": "KeyError: x"}
    assert sizes(*(figures(end, standing=end, **more) for end in (Standing.RESOLVED, Standing.NOT_RUN))) == {}  # type: ignore[arg-type]
