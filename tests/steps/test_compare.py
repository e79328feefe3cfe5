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
    new_store = open_store(str(tmp_path / "store"), create=True)
    Synthetic("monday", instances=30, created_at="2026-11-19T22:00:00Z", log_lines=2).write(new_store)
    worse = {"resolved": 40, "unresolved": 50, "failed": 5}
    Synthetic("tuesday", instances=30, mix=worse, log_lines=2).write(new_store)
    write_report(new_store, "monday")
    write_report(new_store, "tuesday", "monday")
    return new_store


def compare(store: Store, run: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWE_ARGO_")}
    return run_program("swe_argo.steps.compare", ["--store", store.url, "--run", run, *flags], env=clean | env)


def test_compare_prints_without_webhook(store: Store, tmp_path: Path) -> None:
    result = compare(store, "tuesday", "--out", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("tuesday compared with monday (planned 2026-11-19 22:00 UTC)\n")
    assert "McNemar's exact test" in result.stdout
    assert result.stderr == ""
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["outcome"]
    words = (tmp_path / "out" / "outcome").read_text().split()
    assert [words[1], words[3]] == ["gained,", "lost"]
    assert f"; {' '.join(words)}." in result.stdout


def test_compare_retries_webhook(store: Store, tmp_path: Path) -> None:
    with webhook([(500, {}), (429, {"Retry-After": "2"}), (200, {})]) as hook:
        prefix = "https://argo.example/files/"
        result = compare(
            store, "tuesday", "--out", str(tmp_path), SWE_ARGO_WEBHOOK=hook.url, SWE_ARGO_REPORT_URL=prefix
        )
    assert result.returncode == 0, result.stderr
    assert len(hook.bodies) == 3
    assert hook.times[2] - hook.times[1] >= 2.0
    body = hook.bodies[-1]
    assert body["text"].startswith("tuesday: ")
    assert body["text"].endswith(" https://argo.example/files/runs/tuesday/report/report.html")
    assert body["blocks"][0]["type"] == "header"
    assert (tmp_path / "outcome").read_text().endswith(", message sent to the webhook")
    assert "a-secret" not in result.stdout + result.stderr


def test_compare_survives_webhook_error(store: Store) -> None:
    with webhook([(404, {})]) as hook:
        result = compare(store, "tuesday", SWE_ARGO_WEBHOOK=hook.url)
    assert result.returncode == 0
    assert result.stderr == "compare: the webhook (SWE_ARGO_WEBHOOK) failed: it answered 404\n"
    assert "a-secret" not in result.stdout + result.stderr


def test_compare_reports_first_run(store: Store) -> None:
    with webhook([(200, {})]) as hook:
        result = compare(store, "monday", SWE_ARGO_WEBHOOK=hook.url)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("monday: resolved ")
    assert result.stdout.endswith("; not compared with an earlier run\n")
    assert "Not compared with an earlier run." in str(hook.bodies)


def test_empty_webhook_is_unset(store: Store) -> None:
    result = compare(store, "tuesday", SWE_ARGO_WEBHOOK="", SWE_ARGO_REPORT_URL="")
    assert (result.returncode, result.stderr) == (0, "")


def test_compare_needs_report(store: Store) -> None:
    result = compare(store, "wednesday")
    assert result.returncode == 64
    message = f"run: run 'wednesday' has no report yet: swe-argo report wednesday --store {store.url}\n"
    assert result.stderr == message
