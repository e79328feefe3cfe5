"""Putting the patch into the repository: the harness' chain of commands, journalled in its words."""

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
# What the patch and the tests wrote into the repository's configuration has no say in what is only for the journal.
DIFF = "git -c core.fileMode=false -c core.fsmonitor=false -c core.hooksPath=/dev/null diff --no-ext-diff --no-textconv"
# What the journal keeps of what a git command says.
OUTPUT_BYTES = 8 << 20


@dataclass(frozen=True)
class ApplyResult:
    """How the chain ended."""

    command: str | None
    """The command that took the patch, ``REVERSE_CHECK`` where it was in already, None where it does not apply."""
    output: str
    """What the last command said."""


def apply_patch(box: Sandbox, journal: InstanceLogWriter, commands: tuple[str, ...] = APPLY_COMMANDS) -> ApplyResult:
    """Apply what lies at CONTAINER_PATCH_FILE, byte for byte, by the first of ``commands`` that takes it.

    Raises SandboxBroken when a command hangs, and what Sandbox raises.
    """
    words = official.harness_constants()
    patch_file = words.CONTAINER_PATCH_FILE
    output = ""
    for command, result in try_commands(partial(run_git, box), patch_file, commands):
        output = text_of(result)
        if result.exit_code == 0:
            journal.info(f"{words.APPLY_PATCH_PASS}:\n{output}")
            return ApplyResult(command, output)
        journal.info(f"Failed to apply patch to container: {command}")
    if commands == APPLY_COMMANDS and run_git(box, f"{REVERSE_CHECK} {patch_file}").exit_code == 0:
        journal.info(f"{words.APPLY_PATCH_PASS}: verified already applied")
        return ApplyResult(REVERSE_CHECK, output)
    journal.info(f"{words.APPLY_PATCH_FAIL}:\n{output}")
    return ApplyResult(None, output)


def git_diff(box: Sandbox) -> str:
    """What differs from HEAD, permissions aside, as the harness logs it; as much as came in the time it has."""
    return text_of(box.exec(DIFF, timeout_s=DIFF_TIMEOUT_S, merge=True, max_output_bytes=OUTPUT_BYTES)).strip()


def run_git(box: Sandbox, command: str) -> ExecResult:
    """A command of fixed words in the repository, both streams in one. Raises SandboxBroken when it hangs."""
    result = box.exec(command, timeout_s=APPLY_TIMEOUT_S, merge=True, max_output_bytes=OUTPUT_BYTES)
    if result.timed_out:
        raise SandboxBroken(
            FailureClass.EXEC,
            f"{command!r} did not end within {APPLY_TIMEOUT_S:.0f} s in the grading sandbox",
            detail=text_of(result)[-2000:],
        )
    return result


def text_of(result: ExecResult) -> str:
    """The output as text. The harness fails on bytes that are not UTF-8 here; a verdict is worth more."""
    return result.stdout.decode(errors="replace")
