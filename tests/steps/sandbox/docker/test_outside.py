"""Failures that a real engine reports of a container, against those that code inside it can cause."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.docker.container import DockerSandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from tests.base_image import testbed_image as make_testbed_image
from tests.steps.sandbox.docker.test_backend import DockerLab

pytestmark = pytest.mark.docker
PID_1 = "python3 -c 'import resource as r; r.prlimit(1, r.RLIMIT_{limit}, (0, 0))'; kill -9 -1"


@pytest.fixture(scope="module")
def lab(docker_client: DockerClient, checkout: Path) -> Iterator[DockerLab]:
    with DockerLab(docker_client, make_testbed_image(docker_client, checkout)) as lab:
        yield lab


def failure(box: DockerSandbox, *commands: str) -> StepError:
    """Run untrusted commands in a sandbox; return its failure, at the latest in the next command."""
    try:
        for command in (*commands, "sleep 20"):
            as_untrusted(box).exec(command, timeout_s=30)
    except StepError as error:
        return error
    pytest.fail("it did not fail")


@pytest.mark.parametrize(
    "command",
    [
        PID_1.format(limit="AS"),
        PID_1.format(limit="NOFILE"),
        "rm /bin/sh /usr/bin/sh /usr/bin/dash",
        "cp /bin/true /bin/sh.new; mv /bin/sh.new /bin/sh; mv /bin/sh /usr/bin/sh",
        "rm -rf /run/swe-argo; ln -s /run/swe-argo /run/swe-argo",
        "rm -rf /run/swe-argo; echo x >/run/swe-argo",
    ],
)
@pytest.mark.long
def test_inside_damage_breaks_sandbox(lab: DockerLab, command: str) -> None:
    box = lab.make()
    error = failure(box, command)
    assert isinstance(error, SandboxBroken)
    assert box.outside_failure() is None


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda lab, box: lab.kill(box), "was killed from outside"),
        (lambda lab, box: lab.client.api.stop(box.transport.container), "was killed from outside"),
        (lambda lab, box: lab.destroy(box), "was removed"),
    ],
    ids=["killed", "stopped", "removed"],
)
def test_outside_action_is_infra_error(
    lab: DockerLab, act: Callable[[DockerLab, DockerSandbox], None], words: str
) -> None:
    box = lab.make()
    act(lab, box)
    error = failure(box)
    assert type(error) is InfraError
    assert error.failure_class is FailureClass.SANDBOX_LOST
    assert words in error.reason


def test_passed_deadline_is_infra_error(lab: DockerLab) -> None:
    error = failure(lab.make(deadline_s=3))
    assert type(error) is InfraError
    assert "deadline of 3 s" in error.reason


def test_early_deadline_is_not_believed(lab: DockerLab) -> None:
    box = lab.make(deadline_s=3)
    box.transport._deadline_s = 3600.0  # its first process left early with that code
    time.sleep(4)
    assert box.outside_failure() is None


def test_memory_limit_is_infra_once(lab: DockerLab) -> None:
    hungry = "python3 -c 'b = bytearray(300 << 20)' || echo it was killed"
    box = lab.make(memory_mb=64)
    error = failure(box, hungry)
    assert type(error) is ResourceError
    assert (error.failure_class, "64 MiB" in error.reason) == (FailureClass.OUT_OF_MEMORY, True)
    assert b"it was killed" in error.output
    again = lab.make(memory_mb=128, resource_factor=2.0)
    with pytest.raises(SandboxBroken):
        as_untrusted(again, enlarged=True).exec(hungry, timeout_s=30)


def test_killed_process_is_no_oom(lab: DockerLab) -> None:
    box = lab.make(memory_mb=64)
    assert as_untrusted(box).exec("(kill -9 $BASHPID); echo Killed", timeout_s=20).stdout.endswith(b"Killed\n")
    assert box.outside_failure() is None
