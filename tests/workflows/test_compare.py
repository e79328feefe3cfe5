from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import swe_argo


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("store"))
    made = open_store(url)
    for name, share in (("old", 40), ("new", 70), ("unreported", 1)):
        mix = {"resolved": 60, "unresolved": share, "failed": 5}
        Synthetic(name, instances=40, mix=mix, log_lines=1).write(made)
    write_report(made, "old")
    write_report(made, "new")
    return url


def test_two_runs_are_compared_in_words_with_what_changed_first(store: str) -> None:
    done = swe_argo("compare", "old", "new", "--store", store)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "new compared with old (planned 2026-11-20 22:04 UTC)"
    order = [
        next(number for number, line in enumerate(lines) if words in line)
        for words in (
            "difference in set-up",
            "new minus old: ",
            "McNemar's exact test",
            "Lost, ",
            "Without a verdict, ",
        )
    ]
    assert order == sorted(order)
    assert "runs/new/report/compare.json" not in open_store(store).keys("runs/new/report/")


def test_json_is_what_compare_json_holds(store: str) -> None:
    done = swe_argo("compare", "old", "new", "--store", store, "--json")
    result = Comparison.model_validate(json.loads(done.stdout))
    assert (result.against, result.run_id, result.common) == ("old", "new", 40)


def test_the_later_run_may_lie_in_another_store_under_the_same_name(store: str, tmp_path: Path) -> None:
    there = open_store(str(tmp_path), create=True)
    Synthetic("old", instances=40, mix={"resolved": 1}, log_lines=1).write(there)
    write_report(there, "old")
    done = swe_argo("compare", "old", "old", "--store", store, "--store-b", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert " 0 lost" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new", "new"], "'new' is named twice"),
        (["gone", "new"], "there is no run 'gone' in"),
        (["new", "gone"], "there is no run 'gone' in"),
        (["old", "unreported"], "run 'unreported' has no report yet: swe-argo report unreported --store"),
        (["old", "new", "--store-b", "/nowhere"], "there is no run 'new' in /nowhere"),
        (["old"], "Missing argument"),
    ],
)
def test_a_wrong_request_is_one_line_with_the_way_out(store: str, words: list[str], said: str) -> None:
    done = swe_argo("compare", *words, "--store", store)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
