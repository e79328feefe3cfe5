from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.labels import kind_phrase, standing_labels
from swe_argo.steps.reports.messages.terminal import summary_lines
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic

WORST = {
    "instances": 300,
    "attempts": 2,
    "suspects": 0.5,
    "model": "an-organisation-with-a-long-name/" + "m" * 120,
    "spec": {"grading": {"timeout_s": 60, "network": False}, "agent": {"name": "r2egym", "hints": True}},
}


def said(folder: Path, **spec: Any) -> list[str]:
    store = open_store(str(folder), create=True)
    Synthetic(**{"log_lines": 1} | spec).write(store)
    return summary_lines(summarise(read_run(store, "synthetic")))


@pytest.mark.parametrize("spec", [{}, {"instances": 0}, {"mix": {"failed": 1}}, {"hostile": True}, WORST])
def test_at_most_twelve_lines_of_eighty_plain_columns(tmp_path: Path, spec: dict[str, Any]) -> None:
    shown = said(tmp_path, **spec)
    assert 2 <= len(shown) <= 12
    assert all(len(line) <= 80 and line.isprintable() for line in shown), shown


def test_the_last_line_gives_resolved_infra_and_the_place(tmp_path: Path) -> None:
    shown = said(tmp_path, instances=4, mix={"failed": 1})
    assert shown[-1] == "resolved 0/4, infra 4, report: runs/synthetic/report/report.html"


def test_units_that_the_models_endpoint_failed_are_none_of_ours(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=4, mix={"failed": 1}, log_lines=1).write(store)
    summary = summarise(read_run(store, "synthetic"))
    told = summary.model_copy(update={"failures": {"model": 1, "model_access": 1, "sandbox_lost": 2}})
    shown = summary_lines(told)
    assert shown[-1].startswith("resolved 0/4, infra 2, model endpoint 2, report: ")
    assert "infrastructure 2 and model endpoint 2" in shown


@pytest.mark.parametrize(
    ("failures", "name"),
    [
        ({}, "Infrastructure"),
        ({"node_lost": 1}, "Infrastructure"),
        ({"model": 2, "model_access": 1}, "Model endpoint"),
        ({"model": 1, "node_lost": 1}, "Infrastructure and model endpoint"),
    ],
)
def test_a_page_names_whose_the_failures_of_a_run_are(failures: dict[str, int], name: str) -> None:
    assert standing_labels(failures)["failed"].name == name


@pytest.mark.parametrize("kind", ["reference", "control", "given", "replay"])
def test_what_kind_of_run_it_is_fits_a_line(kind: str) -> None:
    assert 0 < len(kind_phrase(kind)) <= 80


def test_doubts_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    shown = said(tmp_path, **WORST)
    assert len(shown) == 12
    assert shown[-2] == "! ... 6 doubts in the report"


def test_rate_of_several_attempts_is_pass_at_1(tmp_path: Path) -> None:
    assert "pass@1 100 % over 2 attempts, 95 %" in "\n".join(said(tmp_path, attempts=2, mix={"resolved": 1}))
    assert "100 % resolved, 95 %" in "\n".join(said(tmp_path / "one", mix={"resolved": 1}))
