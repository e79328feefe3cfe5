from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from tests.forked_program import run_program
from tests.steps.reports.synthetic import Synthetic
from tests.webhook import webhook


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two nights of one spec, the second with its report and its comparison."""
    made = open_store(str(tmp_path / "store"), create=True)
    Synthetic("monday", instances=30, created_at="2026-11-19T22:00:00Z", log_lines=2).write(made)
    worse = {"resolved": 40, "unresolved": 50, "failed": 5}
    Synthetic("tuesday", instances=30, mix=worse, log_lines=2).write(made)
    write_report(made, "monday")
    write_report(made, "tuesday", "monday")
    return made


def compare(store: Store, run: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWE_ARGO_")}
    return run_program("swe_argo.steps.compare", ["--store", store.url, "--run", run, *flags], env=clean | env)


def test_without_a_webhook_the_comparison_is_printed(store: Store, tmp_path: Path) -> None:
    done = compare(store, "tuesday", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tuesday compared with monday (planned 2026-11-19 22:00 UTC)\n")
    assert "McNemar's exact test" in done.stdout
    assert done.stderr == ""
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["outcome"]
    words = (tmp_path / "out" / "outcome").read_text().split()
    assert [words[1], words[3]] == ["gained,", "lost"]
    assert f"; {' '.join(words)}." in done.stdout


def test_a_webhook_that_stumbles_is_told_once_it_stands(store: Store, tmp_path: Path) -> None:
    with webhook([(500, {}), (429, {"Retry-After": "2"}), (200, {})]) as there:
        prefix = "https://argo.example/files/"
        done = compare(store, "tuesday", "--out", str(tmp_path), SWE_ARGO_WEBHOOK=there.url, SWE_ARGO_REPORT_URL=prefix)
    assert done.returncode == 0, done.stderr
    assert len(there.bodies) == 3
    assert there.times[2] - there.times[1] >= 2.0
    told = there.bodies[-1]
    assert told["text"].startswith("tuesday: ")
    assert told["text"].endswith(" https://argo.example/files/runs/tuesday/report/report.html")
    assert told["blocks"][0]["type"] == "header"
    assert (tmp_path / "outcome").read_text().endswith(", webhook told")
    assert "a-secret" not in done.stdout + done.stderr


def test_a_webhook_that_refuses_is_no_failure_and_its_address_stays_secret(store: Store) -> None:
    with webhook([(404, {})]) as there:
        done = compare(store, "tuesday", SWE_ARGO_WEBHOOK=there.url)
    assert done.returncode == 0
    assert done.stderr == "compare: the webhook (SWE_ARGO_WEBHOOK) could not be told: it answered 404\n"
    assert "a-secret" not in done.stdout + done.stderr


def test_a_first_run_is_told_too_and_says_that_nothing_came_before(store: Store) -> None:
    with webhook([(200, {})]) as there:
        done = compare(store, "monday", SWE_ARGO_WEBHOOK=there.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("monday: resolved ")
    assert done.stdout.endswith("; not compared with an earlier run\n")
    assert "Not compared with an earlier run." in str(there.bodies)


def test_an_empty_setting_is_no_webhook(store: Store) -> None:
    done = compare(store, "tuesday", SWE_ARGO_WEBHOOK="", SWE_ARGO_REPORT_URL="")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_without_a_report_is_a_wrong_request_with_a_way_out(store: Store) -> None:
    done = compare(store, "wednesday")
    assert done.returncode == 64
    told = f"run: run 'wednesday' has no report yet: swe-argo report wednesday --store {store.url}\n"
    assert done.stderr == told
