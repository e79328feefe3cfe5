"""Application of a patch to the repository: the harness' chain of commands, logged in the harness' words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.grading import official
from swe_argo.steps.grading.instance_log import InstanceLogWriter
from swe_argo.steps.sandbox.apply_commands import APPLY_COMMANDS, try_commands
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken

REVERSE_CHECK = "git apply --check --reverse"
# The harness sets no limit on these; a git that takes this long hangs.
APPLY_TIMEOUT_S = 300.0
DIFF_TIMEOUT_S = 120.0
# The diff is only for the log. Configuration that the patch or the tests wrote into the repository must not affect it.
DIFF = "git -c core.fileMode=false -c core.fsmonitor=false -c core.hooksPath=/dev/null diff --no-ext-diff --no-textconv"
# Bytes of a git command's output that the log keeps.
OUTPUT_BYTES = 8 << 20


@dataclass(frozen=True)
class ApplyResult:
    """The result of the chain of apply commands."""

    command: str | None
    """The command that applied the patch, ``REVERSE_CHECK`` if it was already applied, None if it does not apply."""
    output: str
    """The output of the last command."""


def apply_patch(box: Sandbox, recorder: InstanceLogWriter, commands: tuple[str, ...] = APPLY_COMMANDS) -> ApplyResult:
    """Apply the file at CONTAINER_PATCH_FILE, byte for byte, with the first of ``commands`` that accepts it.

    With the default commands, a patch that is already applied is a success, as in the harness. Raises SandboxBroken
    if a command hangs, and the errors of Sandbox.
    """
    words = official.harness_constants()
    patch_file = words.CONTAINER_PATCH_FILE
    output = ""
    for command, result in try_commands(partial(run_git, box), patch_file, commands):
        output = text_of(result)
        if result.exit_code == 0:
            recorder.info(f"{words.APPLY_PATCH_PASS}:\n{output}")
            return ApplyResult(command, output)
        recorder.info(f"Failed to apply patch to container: {command}")
    if commands == APPLY_COMMANDS and run_git(box, f"{REVERSE_CHECK} {patch_file}").exit_code == 0:
        recorder.info(f"{words.APPLY_PATCH_PASS}: verified already applied")
        return ApplyResult(REVERSE_CHECK, output)
    recorder.info(f"{words.APPLY_PATCH_FAIL}:\n{output}")
    return ApplyResult(None, output)


def git_diff(box: Sandbox) -> str:
    """Return the diff against HEAD, file modes ignored, as the harness logs it; cut off after DIFF_TIMEOUT_S."""
    return text_of(box.exec(DIFF, timeout_s=DIFF_TIMEOUT_S, merge=True, max_output_bytes=OUTPUT_BYTES)).strip()


def run_git(box: Sandbox, command: str) -> ExecResult:
    """Run a fixed command in the repository, with both streams in one. Raises SandboxBroken if it hangs."""
    result = box.exec(command, timeout_s=APPLY_TIMEOUT_S, merge=True, max_output_bytes=OUTPUT_BYTES)
    if result.timed_out:
        raise SandboxBroken(
            FailureClass.EXEC,
            f"{command!r} timed out after {APPLY_TIMEOUT_S:.0f} s in the grading sandbox",
            detail=text_of(result)[-2000:],
        )
    return result


def text_of(result: ExecResult) -> str:
    """Return the output as text. The harness fails here on bytes that are not UTF-8; a verdict is worth more."""
    return result.stdout.decode(errors="replace")
