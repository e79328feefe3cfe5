"""Commands that apply a patch to a repository, in the harness's order (swebench run_evaluation.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from swe_argo.steps.sandbox.protocol import ExecResult

APPLY_COMMANDS = (
    "git apply --verbose",
    "git apply --verbose --3way",
    "git apply --verbose --reject",
    "patch --batch --forward --fuzz=5 -p1 -i",
)
"""GIT_APPLY_CMDS of the harness."""
RESET = "git checkout -- . ; git clean -fd"
"""Command that removes leftovers of a failed apply, such as ``--reject`` files."""


def try_commands(
    run: Callable[[str], ExecResult], patch_file: str, commands: tuple[str, ...] = APPLY_COMMANDS
) -> Iterator[tuple[str, ExecResult]]:
    """Yield each command and its result until one applies the patch (exit 0); reset the tree before each retry."""
    for number, command in enumerate(commands):
        if number:
            run(RESET)
        result = run(f"{command} {patch_file}")
        yield command, result
        if result.exit_code == 0:
            return
