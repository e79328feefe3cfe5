"""Every end of a run that is an error and leaves something to do is told with the command that does it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from swe_argo.steps.errors import EXIT_BUG, EXIT_INFRA
from tests.workflows.command import QUICK, begin, ids, swe_argo, wait_for


def test_run_exits_75_without_endpoint(tmp_path: Path) -> None:
    asks = ["--agent", "r2egym", "--model", "openai/m", "--base-url", "http://127.0.0.1:9/v1", "--allow-host"]
    result = swe_argo("run", "--store", str(tmp_path), "--run-id", "r", *asks, *ids(QUICK[0]))
    assert result.returncode == EXIT_INFRA, result.stdout + result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"continue with: swe-argo run --store {tmp_path} --run-id r ")


def test_run_reports_unwritten_report(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "report").write_text("in the way")
    result = swe_argo("run", "--store", str(tmp_path), "--run-id", "r", *ids(QUICK[0]))
    assert result.returncode in (EXIT_INFRA, EXIT_BUG), result.stdout + result.stderr
    message = f"all units have ended; to write the report: swe-argo report r --store {tmp_path}"
    assert result.stderr.splitlines()[-1] == message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_stopped_in_planning_resumes(number: signal.Signals, tmp_path: Path) -> None:
    runner = begin("run", "--store", str(tmp_path), "--run-id", "r", *ids(*QUICK))
    wait_for((tmp_path / "runs" / "r" / "lock.json").exists)
    runner.send_signal(number)
    output, _ = runner.communicate(timeout=60)
    # Python ends itself by the signal where that came while it ran a string, as dataclasses do: 130 to a shell, too.
    assert runner.returncode in (130, -signal.SIGINT), output
    assert "stopped; continue with: " in output
    assert f"run --store {tmp_path} --run-id r " in output
