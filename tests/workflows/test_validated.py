"""A validation names what is unfit and why; a run of what is fit names what it leaves out; others' are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.validation import Validation, validation_key
from swe_argo.steps.errors import EXIT_CONFIG, EXIT_OK
from swe_argo.steps.reports.known import known_doubts
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of
from tests.workflows.command import ids, plan, summary, swe_argo
from tests.workflows.unfit_rows import make_unfit_rows

# validated once, not by every worker
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("validated")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows, a store with a validation of them, and what the command said of it in ``said``."""
    folder = tmp_path_factory.mktemp("lab")
    words = (str(folder / "rows.jsonl"), *make_unfit_rows(folder), "--store", str(folder / "store"), "--run-id", "v")
    done = swe_argo("validate", *words, "--workers", "1")
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def words_of(lab: Path, run: str, *more: str) -> tuple[str, ...]:
    family = ("--local-images", str(lab / "images"), "--family", f"{lab}/acme.py:ACME")
    rows = ("--dataset", str(lab / "rows.jsonl"), "--agent", "gold")
    return ("run", *rows, *family, "--store", str(lab / "store"), "--run-id", run, *more)


def file_of(lab: Path) -> Path:
    return lab / "store" / validation_key(str(lab / "rows.jsonl"), "v")


def test_each_way_to_be_unfit_is_named_with_its_tests(lab: Path) -> None:
    found = {one.instance_id: one for one in Validation.from_bytes(file_of(lab).read_bytes()).instances}
    assert {name: one.fitness.value for name, one in found.items()} == {
        "good": "valid",
        "gold-fails": "gold_fails",
        "idle-resolves": "idle_resolves",
        "flaky": "flaky",
    }
    assert found["flaky"].flaky_tests == {"other": 1}
    assert (found["flaky"].gold_resolved, found["flaky"].reason) == (2, "resolved in 2 of 3 gold runs")
    assert found["gold-fails"].failing_tests == ["answer"]
    assert found["idle-resolves"].passing_untouched == ["answer"]
    assert all(len(one.row_sha256) == 64 for one in found.values())
    page = file_of(lab).with_name("report.html")
    last = (lab / "said").read_text().strip().splitlines()[-1]
    assert last == f"v: 1 of 4 valid, 1 gold_fails, 1 idle_resolves, 1 flaky; page: {page}"
    html = page.read_text()
    assert "other  (failed in 1 of 3)" in html
    assert html.count('<tr id="') == 3, "those that are fit are not listed"


def test_what_is_not_valid_says_nothing_of_a_machine(lab: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (lab / "rows.jsonl").read_text().splitlines()]
    patches = [{"instance_id": row["id"], "model_name_or_path": "m", "model_patch": row["gold"]} for row in rows]
    (tmp_path / "preds.json").write_text(json.dumps(patches))
    given = ("--agent", "given", "--predictions", str(tmp_path / "preds.json"), *ids("good", "gold-fails"))
    done = swe_argo(*words_of(lab, "canary", *given, "--canary", "2"))
    assert done.returncode == EXIT_OK, done.stderr
    assert [unit.instance_id for unit in plan(str(lab / "store"), "canary").canary] == ["good"]


def test_what_is_not_valid_is_left_out_and_named(lab: Path) -> None:
    done = swe_argo(*words_of(lab, "fit", "--validated", "last"))
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    named = "1 gold_fails: gold-fails; 1 idle_resolves: idle-resolves; 1 flaky: flaky"
    assert f"3 of 4 selected instances left out, not valid by v: {named}" in done.stdout
    assert "Left out as not valid by v: 3 instances (1 gold_fails, 1 idle_resolves and 1 flaky)." in " ".join(
        done.stdout.split()
    )
    store = str(lab / "store")
    assert [unit.instance_id for unit in plan(store, "fit").units] == ["good"]
    figures = summary(store, "fit")
    assert (figures.headline.total, figures.conditions.validation) == (1, "v")
    assert figures.conditions.unfit == {"gold-fails": "gold_fails", "idle-resolves": "idle_resolves", "flaky": "flaky"}
    assert "Left out as not valid by v" in (lab / "store/runs/fit/report/report.html").read_text()


def test_all_are_run_and_the_unfit_are_only_named(lab: Path) -> None:
    done = swe_argo(*words_of(lab, "all", "--validated", str(file_of(lab)), "--keep-invalid"))
    assert "3 of 4 selected instances are not valid by v, and run: 1 gold_fails" in done.stdout, done.stderr
    assert len(plan(str(lab / "store"), "all").units) == 4


def test_what_is_selected_beyond_the_validation_counts_as_unfit(lab: Path, tmp_path: Path) -> None:
    validation = json.loads(file_of(lab).read_text())
    validation["instances"] = [one for one in validation["instances"] if one["instance_id"] != "flaky"]
    (tmp_path / "part.json").write_text(json.dumps(validation))
    done = swe_argo(*words_of(lab, "part", "--validated", str(tmp_path / "part.json")))
    assert "1 not_validated: flaky" in done.stdout, done.stderr


def test_the_last_validation_of_a_file_is_found_by_another_path_to_it(lab: Path) -> None:
    words = list(words_of(lab, "path", "--validated", "last"))
    words[words.index("--dataset") + 1] = f"{lab}/../{lab.name}/rows.jsonl"
    done = swe_argo(*words)
    assert done.returncode == EXIT_OK, done.stderr
    assert "left out, not valid by v" in done.stdout
    store = open_store(str(lab / "store"))
    other = f"{lab}/../{lab.name}/rows.jsonl"
    assert known_doubts(store, other).flips["flaky"]["other"].flipped
    assert known_doubts(store, other) == known_doubts(store, str(lab / "rows.jsonl"))


def test_of_several_validations_the_last_is_the_one_that_knows_most_of_the_run(lab: Path) -> None:
    whole = json.loads(file_of(lab).read_text())
    flaky = next(one for one in whole["instances"] if one["instance_id"] == "flaky")
    few = whole | {"validation_id": "few", "created_at": "2999-01-01T00:00:00+00:00"}
    few["instances"] = [flaky | {"fitness": "valid", "gold": flaky["gold"][:1]}]
    place = file_of(lab).parents[1] / "few" / "validation.json"
    place.parent.mkdir()
    place.write_text(json.dumps(few))
    try:
        done = swe_argo(*words_of(lab, "most", "--validated", "last"))
        assert "3 of 4 selected instances left out, not valid by v: " in done.stdout, done.stderr
        done = swe_argo(*words_of(lab, "few", "--validated", "last", "--instance", "flaky"))
        used = record_of(open_store(str(lab / "store")), RunFile, "few").validation
        assert used is not None, done.stderr
        assert used.validation_id == "few"
        # One gold run says less of flakes than three.
        doubts = known_doubts(open_store(str(lab / "store")), str(lab / "rows.jsonl"))
        assert doubts.unfit["flaky"] == "flaky by validation v"
    finally:
        place.unlink()


def test_a_run_goes_on_by_the_validation_it_began_with(lab: Path) -> None:
    assert swe_argo(*words_of(lab, "on", "--validated", "last")).returncode == EXIT_OK
    newer = json.loads(file_of(lab).read_text()) | {"validation_id": "w", "created_at": "2999-01-01T00:00:00+00:00"}
    newer["instances"] = [one | {"fitness": "valid"} for one in newer["instances"]]
    place = file_of(lab).parents[1] / "w" / "validation.json"
    place.parent.mkdir()
    place.write_text(json.dumps(newer))
    try:
        assert swe_argo(*words_of(lab, "on", "--validated", "last")).returncode == EXIT_OK
        used = record_of(open_store(str(lab / "store")), RunFile, "on").validation
        assert used is not None
        assert used.validation_id == "v"
    finally:
        place.unlink()


def test_a_run_goes_on_and_is_regraded_whatever_became_of_its_validation(lab: Path, tmp_path: Path) -> None:
    folder = tmp_path / "validations"
    assert swe_argo(*words_of(lab, "gone", "--validated", "last")).returncode == EXIT_OK
    file_of(lab).parents[1].rename(folder)
    try:
        assert swe_argo(*words_of(lab, "gone", "--validated", "last")).returncode == EXIT_OK
        done = swe_argo("regrade", "gone", "--store", str(lab / "store"))
    finally:
        folder.rename(file_of(lab).parents[1])
    assert "1 of 1 verdicts as before" in done.stdout, done.stderr
    assert [unit.instance_id for unit in plan(str(lab / "store"), "gone.regrade-1").units] == ["good"]


def changed(**dataset: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda validation: validation | {"dataset": validation["dataset"] | dataset}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            changed(name="SWE-bench/SWE-bench_Lite", revision="abc"),
            "is of SWE-bench/SWE-bench_Lite (test, revision abc)",
        ),
        (changed(revision="abc"), "revision abc), the run's dataset is "),
        (changed(split="dev"), "(dev, no revision), the run's dataset is "),
        (
            lambda it: it | {"instances": [one | {"row_sha256": "0" * 64} for one in it["instances"]]},
            "is of other rows of ",
        ),
        (lambda _: {}, "is no validation, or one of another version of swe-argo"),
    ],
    ids=["dataset", "revision", "split", "rows", "format"],
)
def test_a_validation_of_something_else_is_one_line_that_names_both(
    lab: Path, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], reason: str
) -> None:
    (tmp_path / "other.json").write_text(json.dumps(change(json.loads(file_of(lab).read_text()))))
    done = swe_argo(*words_of(lab, "other", "--validated", str(tmp_path / "other.json")))
    assert done.returncode == EXIT_CONFIG
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("swe-argo: select.validated: ")
    assert reason in line


def test_without_any_validation_the_line_says_how_to_get_one(lab: Path, tmp_path: Path) -> None:
    words = words_of(lab, "none", "--validated", "last", "--store", str(tmp_path / "empty"))
    done = swe_argo(*words)
    assert done.returncode == EXIT_CONFIG
    assert f"has no validation of {lab / 'rows.jsonl'}: swe-argo validate" in done.stderr


def test_a_verdict_that_hangs_on_a_test_known_to_flip_says_so(lab: Path) -> None:
    store = str(lab / "store")
    sentence = "its failing test is known to flip: other (seen 3, flipped 1)"
    assert [(one.attempt, one.flips) for one in summary(store, "v.gold").flipping] == [(2, {"other": (3, 1)})]
    shown = swe_argo("show", "v.gold", "flaky", "--attempt", "2", "--store", store)
    # What is shown is of now: other runs of the store may have seen it since.
    assert sentence.partition("3, ")[0] in shown.stdout, shown.stderr
    report = lab / "store/runs/v.gold/report"
    assert sentence in (report / "report.html").read_text()
    assert sentence in (report / "instances/flaky.2.html").read_text()
    assert "1 unit is unresolved by nothing but tests that are known to flip." in (report / "report.html").read_text()


def test_what_a_comparison_lost_is_named_with_what_is_known_against_it(lab: Path) -> None:
    for run in ("before", "after"):
        done = swe_argo(*words_of(lab, run, "--instance", "flaky"))
        assert done.returncode == EXIT_OK, done.stderr
    unit = lab / "store/runs/after/units/flaky/1/grade.json"
    lost = {"outcome": "unresolved", "resolved": False, "failing_tests": ["other"]}
    unit.write_text(json.dumps(json.loads(unit.read_text()) | lost))
    assert swe_argo("report", "after", "--store", str(lab / "store")).returncode == EXIT_OK
    done = swe_argo("compare", "before", "after", "--store", str(lab / "store"))
    assert "flaky by validation v; its failing test is known to flip: other (seen" in done.stdout, done.stderr
