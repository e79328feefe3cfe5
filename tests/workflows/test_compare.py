from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import call


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("store"))
    opened = open_store(url)
    for name, share in (("old", 40), ("new", 70), ("unreported", 1)):
        mix = {"resolved": 60, "unresolved": share, "failed": 5}
        Synthetic(name, instances=40, mix=mix, log_lines=1).write(opened)
    write_report(opened, "old")
    write_report(opened, "new")
    return url


def test_compare_starts_with_differences(store: str) -> None:
    result = call("compare", "old", "new", "--store", store)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "new compared with old (planned 2026-11-20 22:04 UTC)"
    parts = ("difference in set-up", "new minus old: ", "McNemar's exact test", "Lost, ", "Without a verdict, ")
    order = [next(number for number, line in enumerate(lines) if words in line) for words in parts]
    assert order == sorted(order)
    assert "runs/new/report/compare.json" not in open_store(store).keys("runs/new/report/")


def test_compare_json_matches_comparison(store: str) -> None:
    completed = call("compare", "old", "new", "--store", store, "--json")
    result = Comparison.model_validate(json.loads(completed.stdout))
    assert (result.against, result.run_id, result.common) == ("old", "new", 40)


def test_compare_reads_second_store(store: str, tmp_path: Path) -> None:
    second_store = open_store(str(tmp_path), create=True)
    Synthetic("old", instances=40, mix={"resolved": 1}, log_lines=1).write(second_store)
    write_report(second_store, "old")
    result = call("compare", "old", "old", "--store", store, "--store-b", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert " 0 lost" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "new"], "cannot compare 'new' with itself"),
        (["gone", "new"], "there is no run 'gone' in"),
        (["new", "gone"], "there is no run 'gone' in"),
        (["old", "unreported"], "run 'unreported' has no report yet: swe-argo report unreported --store"),
        (["old", "new", "--store-b", "/nowhere"], "there is no run 'new' in /nowhere"),
        (["old"], "Missing argument"),
    ],
)
def test_compare_refuses_in_one_line(store: str, words: list[str], message: str) -> None:
    result = call("compare", *words, "--store", store)
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
