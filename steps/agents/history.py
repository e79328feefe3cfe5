"""Hiding of a repository's history: an agent may read HEAD and its ancestors only."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.solve_record import History
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

TIMEOUT_S = 1800.0
"""Timeout: repacking 50,000 objects takes about 2 s, a repository of ten million some minutes."""

_SCRIPT = Path(__file__).resolve().with_name("hide_history.sh")


def hide_history(sandbox: Sandbox) -> History:
    """Make all objects that HEAD does not reach unreadable in /testbed's repository, and verify it.

    Their date does not matter: images made before swebench 4.1.0 hold commits after the base commit, and HEAD is a
    commit made with the image, so the fix may be older than HEAD. Agents have searched for it (swebench #465, #471).
    The working tree, the index, untracked files, HEAD's branch and tags on HEAD's history stay; version tools need the
    tags. Repositories inside the working tree (submodules, vendored clones) are cleaned and counted, too; linked
    worktrees inside it are removed.

    Raises ConfigError if the image's repository cannot be cleaned: no agent starts on an unverified one, and a retry
    would fail the same way. Raises InfraError or ResourceError if the machine failed.
    """
    result = sandbox.exec(_SCRIPT.read_text(), timeout_s=TIMEOUT_S)
    if result.exit_code != 0:
        raise script_failure("hiding the history of the repository", result)
    report: dict[str, str] = {}
    problems = []
    for line in result.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        if key in ("refused", "problem"):
            problems.append(value)
        else:
            report[key] = value
    if problems or "unreachable_after" not in report:
        raise ConfigError(
            f"no agent can work in {sandbox.machine.image}: {'; '.join(problems) or 'its history was not verified'}; "
            "make the image a plain git checkout",
            field="image",
        )
    return History(
        head=report["head"],
        refs_removed=max(0, int(report["refs_removed"])),
        objects_before=int(report["objects_before"]),
        objects_after=int(report["objects_after"]),
        unreachable_after=int(report["unreachable_after"]),
        verified=True,
    )
