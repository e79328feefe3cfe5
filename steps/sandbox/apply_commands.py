"""The commands that put a patch into a repository, and their order: the harness' (swebench run_evaluation.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from swe_argo.steps.sandbox.protocol import ExecResult

APPLY_COMMANDS = (
    "git apply --verbose",
    "git apply --verbose --3way",
    "git apply --verbose --reject",
    "patch --batch --forward --fuzz=5 -p1 -i",
)
"""GIT_APPLY_CMDS there."""
RESET = "git checkout -- . ; git clean -fd"
"""A failed command (``--reject`` above all) leaves parts behind."""


def try_commands(
    run: Callable[[str], ExecResult], patch_file: str, commands: tuple[str, ...] = APPLY_COMMANDS
) -> Iterator[tuple[str, ExecResult]]:
    """Each command and how it ended, the tree reset before each further one, until one takes the patch (exit 0)."""
    for number, command in enumerate(commands):
        if number:
            run(RESET)
        result = run(f"{command} {patch_file}")
        yield command, result
        if result.exit_code == 0:
            return
