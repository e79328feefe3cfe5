"""Sandboxes around others: started jobs are judged as commands are, and a backend need not have any."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.command_log import with_command_log
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from swe_argo.steps.sandbox.wrapper import start_job
from tests.steps.sandbox.test_job_sandbox import MACHINE, ThisMachine
from tests.steps.sandbox.test_untrusted import Failing

COMMAND = "read -r line; echo $line; cat; trap 'exit 3' INT; echo trapped; while :; do sleep 0.05; done"


@pytest.fixture
def debug() -> Iterator[None]:
    logger = logging.getLogger("swe_argo.steps.sandbox.command_log")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(level)


def test_backend_may_lack_started_jobs() -> None:
    for box in (Failing(None, None), as_untrusted(Failing(None, None))):
        assert box.exec("true", timeout_s=1).exit_code == 0
        with pytest.raises(ConfigError, match="backend local cannot run commands in the background"):
            start_job(box, "true")


def test_started_job_works_when_wrapped(tmp_path: Path, debug: None, caplog: pytest.LogCaptureFixture) -> None:
    box = with_command_log(as_untrusted(JobSandbox(MACHINE, ThisMachine(tmp_path))))
    job = start_job(box, COMMAND, cwd="/")
    job.send(b"hello\n")
    job.close_input()
    output = b""
    while not output.endswith(b"trapped\n"):
        output += job.poll(wait_s=0.2).output
    assert output == b"hello\ntrapped\n"
    assert job.poll(wait_s=60, quiet_s=0.5).quiet
    job.interrupt()
    assert job.poll(wait_s=20).exit_code == 3
    assert [record.message for record in caplog.records] == [f"command {COMMAND!r}: started"]


def test_failed_job_is_judged_like_exec(tmp_path: Path) -> None:
    transport = ThisMachine(tmp_path, last=b"begun\n")
    job = start_job(as_untrusted(JobSandbox(MACHINE, transport)), "echo begun; sleep 60", cwd="/")
    assert job.poll(wait_s=60, until_output=True).output == b"begun\n"
    with pytest.raises(SandboxBroken) as caught:
        job.poll(wait_s=20)
    assert caught.value.failure_class is FailureClass.EXEC
    lost = InfraError(FailureClass.SANDBOX_LOST, "it was removed")
    transport = ThisMachine(tmp_path, lost, last=b"begun\n")
    job = start_job(as_untrusted(JobSandbox(MACHINE, transport)), "echo begun; sleep 60", cwd="/")
    assert job.poll(wait_s=60, until_output=True).output == b"begun\n"
    with pytest.raises(InfraError, match="it was removed") as removed:
        job.poll(wait_s=20)
    assert removed.value is lost
