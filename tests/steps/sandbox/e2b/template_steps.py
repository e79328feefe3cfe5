"""The steps of a template's build, done in a machine of the test server as E2B's builder does them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.local.sandbox import LocalSandbox
from tests.steps.sandbox.envd.machines import Machines

_LIFE_S = 120.0


def apply_steps(machines: Machines, image: str, steps: Sequence[dict[str, Any]], files: Mapping[str, bytes]) -> str:
    """The folder image that they make of another. Raises StepError, KeyError: a file that was not uploaded."""
    box = machines.make_box(image, _LIFE_S, network=False)
    try:
        for step in steps:
            if step["type"] == "COPY":
                _copy(box, step["args"], files[step["filesHash"]])
            else:
                assert step["type"] == "RUN"
                _run(box, step["args"][0])
        return machines.keep_box(box)
    finally:
        machines.destroy_box(box)


def _copy(box: LocalSandbox, args: Sequence[str], archive: bytes) -> None:
    """One file to its place: e2b-dev/infra, template/build/commands/copy.go and copy_script.sh."""
    source, target, user, mode = args
    assert (user, mode) == ("root", "")
    box.write("/tmp/layer.tar", archive)
    place = shlex.quote(target)
    _run(box, "mkdir /tmp/layer && tar -xzf /tmp/layer.tar --no-same-owner -C /tmp/layer")
    _run(box, f'mkdir -p "$(dirname {place})" && mv /tmp/layer/{shlex.quote(source)} {place} && rm -rf /tmp/layer*')


def _run(box: LocalSandbox, command: str) -> None:
    ran = box.exec(shlex.join(["bash", "-l", "-c", command]), timeout_s=_LIFE_S, cwd="/", merge=True)
    if ran.exit_code:
        raise InfraError(FailureClass.EXEC, f"failed to run command {command!r}: {ran.stdout.decode()}")
