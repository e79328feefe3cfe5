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


def summary_of(folder: Path, **spec: Any) -> list[str]:
    store = open_store(str(folder), create=True)
    Synthetic(**{"log_lines": 1} | spec).write(store)
    return summary_lines(summarise(read_run(store, "synthetic")))


@pytest.mark.parametrize("spec", [{}, {"instances": 0}, {"mix": {"failed": 1}}, {"hostile": True}, WORST])
def test_summary_lines_fit_terminal(tmp_path: Path, spec: dict[str, Any]) -> None:
    lines = summary_of(tmp_path, **spec)
    assert 2 <= len(lines) <= 12
    assert all(len(line) <= 80 and line.isprintable() for line in lines), lines


def test_summary_ends_with_report(tmp_path: Path) -> None:
    lines = summary_of(tmp_path, instances=4, mix={"failed": 1})
    assert lines[-1] == "resolved 0/4, infra 4, report: runs/synthetic/report/report.html"


def test_endpoint_failures_are_separate(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic(instances=4, mix={"failed": 1}, log_lines=1).write(store)
    summary = summarise(read_run(store, "synthetic"))
    changed = summary.model_copy(update={"failures": {"model": 1, "model_access": 1, "sandbox_lost": 2}})
    lines = summary_lines(changed)
    assert lines[-1].startswith("resolved 0/4, infra 2, model endpoint 2, report: ")
    assert "infrastructure 2 and model endpoint 2" in lines


@pytest.mark.parametrize(
    ("failures", "name"),
    [
        ({}, "Infrastructure"),
        ({"node_lost": 1}, "Infrastructure"),
        ({"model": 2, "model_access": 1}, "Model endpoint"),
        ({"model": 1, "node_lost": 1}, "Infrastructure and model endpoint"),
    ],
)
def test_page_names_origin_of_failures(failures: dict[str, int], name: str) -> None:
    assert standing_labels(failures)["failed"].name == name


@pytest.mark.parametrize("kind", ["reference", "control", "given", "replay"])
def test_kind_phrase_fits_one_line(kind: str) -> None:
    assert 0 < len(kind_phrase(kind)) <= 80


def test_further_doubts_are_counted(tmp_path: Path) -> None:
    lines = summary_of(tmp_path, **WORST)
    assert len(lines) == 12
    assert lines[-2] == "! ... 6 caveats in the report"


def test_rate_counts_all_attempts(tmp_path: Path) -> None:
    assert "pass@1 100 % over 2 attempts, 95 %" in "\n".join(summary_of(tmp_path, attempts=2, mix={"resolved": 1}))
    assert "100 % resolved, 95 %" in "\n".join(summary_of(tmp_path / "one", mix={"resolved": 1}))
