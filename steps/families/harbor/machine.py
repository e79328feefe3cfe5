"""Preparation of a task's machine for an agent or a verifier."""

from __future__ import annotations

import secrets
import shlex

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.families.machine_setup import require_isolation
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

TIMEOUT_S = 600.0
USUAL_WORKDIR = "/app"
"""The usual working directory of task images, for tasks that do not name one."""
_PREPARE = r"""
set -eu
work={workdir} start={start}
[ -n "$work" ] || {{ work=/; [ ! -d {usual} ] || work={usual}; }}
if [ "$work" != "$start" ]; then
  if [ -d "$start" ] && [ ! -L "$start" ] && [ -n "$(ls -A "$start")" ]; then
    if [ ! -e "$work" ]; then mkdir -p "${{work%/*}}/" && ln -s "$start" "$work"; fi
  else
    mkdir -p "$work"
    [ ! -d "$start" ] || [ -L "$start" ] || rmdir "$start"
    ln -sfn "$work" "$start"
  fi
fi
rm -rf /logs/verifier
mkdir -p /logs/agent /logs/verifier /logs/artifacts
chmod 777 /logs/agent /logs/verifier /logs/artifacts
"""
"""Links our working directory (``start``) to the task's (``work``), unless the image has files in ours: then, if the
task's does not exist, it is linked to ours."""


def prepare_machine(box: Sandbox, workdir: str | None) -> None:
    """Create Harbor's log folders, and link the task's working directory and ours to each other.

    Raises ConfigError without isolation, InfraError, ResourceError.
    """
    require_isolation(box, "files of this task")
    script = _PREPARE.format(workdir=shlex.quote(workdir or ""), start=WORKDIR, usual=USUAL_WORKDIR)
    result = box.exec(script, timeout_s=TIMEOUT_S, cwd="/")
    if result.exit_code != 0:
        raise script_failure("preparing the task's machine", result)


def put_folder(box: Sandbox, folder: str, tar: bytes) -> None:
    """Replace the content of ``folder`` by a tar's. Raises InfraError, ResourceError."""
    file = f"/var/tmp/swe-argo-{secrets.token_hex(8)}.tar"  # noqa: S108 - of the sandbox
    box.write(file, tar)
    script = f"rm -rf {folder} && mkdir -p {folder} && tar -x -o -f {file} -C {folder} && rm -f {file}"
    result = box.exec(script, timeout_s=TIMEOUT_S, cwd="/")
    if result.exit_code != 0:
        raise script_failure(f"writing {folder}", result)


def in_workdir(workdir: str | None, program: str) -> str:
    """Return the command that runs a program in the task's working directory, if it still exists."""
    return f"chmod +x {program}; cd {shlex.quote(workdir or WORKDIR)} 2>/dev/null; exec {program}"
