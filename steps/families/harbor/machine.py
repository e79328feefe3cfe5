"""A task's machine before an agent or a verifier comes to it, and what is put into it for them."""

from __future__ import annotations

import secrets
import shlex

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.families.machine_setup import require_isolation
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

TIMEOUT_S = 600.0
USUAL_WORKDIR = "/app"
"""Where images of tasks have it; for those that do not say so."""
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


def prepare_machine(box: Sandbox, workdir: str | None) -> None:
    """The folders of Harbor's logs, and the task's folder and ours one and the same: the one that is missing is a link.

    Raises ConfigError where paths of the machine are this host's, InfraError, ResourceError.
    """
    require_isolation(box, "files of this task lie")
    script = _PREPARE.format(workdir=shlex.quote(workdir or ""), start=WORKDIR, usual=USUAL_WORKDIR)
    result = box.exec(script, timeout_s=TIMEOUT_S, cwd="/")
    if result.exit_code != 0:
        raise script_failure("preparing the task's machine", result)


def put_folder(box: Sandbox, folder: str, tar: bytes) -> None:
    """Make ``folder`` hold what is in a tar, and nothing else. Raises InfraError, ResourceError."""
    file = f"/var/tmp/swe-argo-{secrets.token_hex(8)}.tar"  # noqa: S108 - of the sandbox
    box.write(file, tar)
    script = f"rm -rf {folder} && mkdir -p {folder} && tar -x -o -f {file} -C {folder} && rm -f {file}"
    result = box.exec(script, timeout_s=TIMEOUT_S, cwd="/")
    if result.exit_code != 0:
        raise script_failure(f"putting {folder} in place", result)


def in_workdir(workdir: str | None, program: str) -> str:
    """The command that runs a program where the task works, whatever became of that folder."""
    return f"chmod +x {program}; cd {shlex.quote(workdir or WORKDIR)} 2>/dev/null; exec {program}"
