"""Scripts for an image of SWE-smith (swesmith 0.0.9, harness/utils.py ``run_patch_in_container``).

An agent starts at the top of the instance's branch, which lacks the tests that the bug fails; grading starts at its
parent, which has them. The branches are newer than the images, so fetching one may need the network.
"""

from __future__ import annotations

from shlex import quote

from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.machine_setup import TRUST_REPOSITORY, remove_bytecode
from swe_argo.steps.families.swesmith.profiles import profile_of
from swe_argo.steps.families.swesmith.rows import branch, list_test_files
from swe_argo.steps.families.swesmith.verdict import END, START
from swe_argo.steps.grading.exit_code_channel import EXIT_CODE_VARIABLE

TESTBED = "/testbed"
NO_BRANCH, NOT_FETCHED = 72, 73
"""Exit codes for a branch that does not exist, or could not be fetched."""
_COMMITTER = " ".join(
    f"GIT_{role}_NAME=swesmith GIT_{role}_EMAIL=swesmith@localhost GIT_{role}_DATE='2000-01-01 00:00:00 +0000'"
    for role in ("AUTHOR", "COMMITTER")
)

RECOMMIT = f"""#!/bin/bash
set -eu
{TRUST_REPOSITORY}
cd {quote(TESTBED)}
git add -u
start=$({_COMMITTER} git commit-tree -m Start "$(git write-tree)")
git update-ref --no-deref HEAD "$start"
"""
"""A script that commits the tracked files as the only commit that HEAD reaches, from which tests are restored."""


def agent_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that checks out the bug in an agent's sandbox, without the tests that it fails.

    HEAD becomes a commit without parents, since the branch's first commit is the repository without the bug and its
    second has the tests. The step that hides the repository's history removes other refs to these commits.
    """
    name = quote(branch(row))
    return _script(
        testbed,
        *_checkout(name),
        f"start=$({_COMMITTER} git commit-tree -m 'Start' 'HEAD^{{tree}}')",
        'git checkout -q --detach "$start"',
        f"git branch -q -D {name} 2>/dev/null || true",
        remove_bytecode("."),  # which may stem from the repository without the bug, or reveal names of tests
    )


def prepare_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that checks out the bug with its tests in a grading sandbox, before a patch is applied."""
    return _script(testbed, *_checkout(quote(branch(row))), "git checkout -q HEAD~1")


def restore_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that restores the files of the listed tests, after the patch.

    It restores file by file, since git restores none of several files if one is unknown. Go's ids have no file, so all
    Go tests are restored.
    """
    files = [quote(file) for file in list_test_files(row)] or ["'*_test.go'"]
    return _script(testbed, *(f"git checkout -q HEAD -- {file} || true" for file in files))


def eval_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return the script whose output is the log that ``judge`` reads, as swesmith writes ``/eval.sh``.

    Its timeout is ``profile_of(row).timeout_s``. Raises ConfigError for a repository without a profile.
    """
    profile = profile_of(row)
    files = [quote(file) for file in list_test_files(row)] if profile.names_test_files else []
    return "\n".join(
        [
            "#!/bin/bash",
            "set -uxo pipefail",
            f"cd {quote(testbed)}",
            f": '{START}'",
            " ".join([profile.test_command, *files]),
            f"{{ {EXIT_CODE_VARIABLE}=$?; }} 2>/dev/null",  # not in the trace
            f": '{END}'",
            "",
        ]
    )


def _checkout(name: str) -> list[str]:
    """Return commands that check out a branch (quoted), and fetch it if it is missing.

    They exit with NO_BRANCH or NOT_FETCHED if they fail.
    """
    local, remote = f"refs/heads/{name}", f"refs/remotes/origin/{name}"
    return [
        f"start=$(git rev-parse -q --verify {local} || git rev-parse -q --verify {remote}"
        f" || {{ git fetch -q origin {name}:{remote} 2>.git/fetched && git rev-parse -q --verify {remote}; }})"
        f" || {{ cat .git/fetched >&2; ! grep -q 'find remote ref' .git/fetched || exit {NO_BRANCH};"
        f" exit {NOT_FETCHED}; }}",
        'git checkout -q --detach "$start"',
    ]


def _script(testbed: str, *commands: str) -> str:
    return "\n".join(["#!/bin/bash", "set -eu", TRUST_REPOSITORY, f"cd {quote(testbed)}", *commands]) + "\n"
