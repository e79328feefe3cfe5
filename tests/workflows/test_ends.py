"""Every end of a run that is an error and leaves something to do is told with the command that does it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from swe_argo.steps.errors import EXIT_BUG, EXIT_INFRA
from tests.workflows.command import QUICK, begin, ids, swe_argo, wait_for


def test_an_endpoint_that_is_away_while_planning(tmp_path: Path) -> None:
    asks = ["--agent", "r2egym", "--model", "openai/m", "--base-url", "http://127.0.0.1:9/v1", "--allow-host"]
    done = swe_argo("run", "--store", str(tmp_path), "--run-id", "r", *asks, *ids(QUICK[0]))
    assert done.returncode == EXIT_INFRA, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"to go on: swe-argo run --store {tmp_path} --run-id r ")


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "report").write_text("in the way")
    done = swe_argo("run", "--store", str(tmp_path), "--run-id", "r", *ids(QUICK[0]))
    assert done.returncode in (EXIT_INFRA, EXIT_BUG), done.stdout + done.stderr
    told = f"its units are done; for the report: swe-argo report r --store {tmp_path}"
    assert done.stderr.splitlines()[-1] == told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_planning(number: signal.Signals, tmp_path: Path) -> None:
    runner = begin("run", "--store", str(tmp_path), "--run-id", "r", *ids(*QUICK))
    wait_for((tmp_path / "runs" / "r" / "lock.json").exists)
    runner.send_signal(number)
    said, _ = runner.communicate(timeout=60)
    # Python ends itself by the signal where that came while it ran a string, as dataclasses do: 130 to a shell, too.
    assert runner.returncode in (130, -signal.SIGINT), said
    assert "stopped; to go on: " in said
    assert f"run --store {tmp_path} --run-id r " in said
