"""Scripts for an image of SWE-smith (swesmith 0.0.9, harness/utils.py ``run_patch_in_container``).

An agent starts at the top of the instance's branch, where the tests that the bug fails are removed; grading starts at
its parent, which has them. The branches were made after the images, so fetching one may need the network.
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
"""Exit codes if the branch is not in the image: there is none of that name, or it could not be fetched."""
_COMMITTER = " ".join(
    f"GIT_{who}_NAME=swesmith GIT_{who}_EMAIL=swesmith@localhost GIT_{who}_DATE='2000-01-01 00:00:00 +0000'"
    for who in ("AUTHOR", "COMMITTER")
)

RECOMMIT = f"""#!/bin/bash
set -eu
{TRUST_REPOSITORY}
cd {quote(TESTBED)}
git add -u
start=$({_COMMITTER} git commit-tree -m Start "$(git write-tree)")
git update-ref --no-deref HEAD "$start"
"""
"""A script that makes the current tracked files the only commit that HEAD reaches; the tests are restored from it."""


def agent_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that brings an agent's sandbox to the bug, without the tests that it fails.

    HEAD becomes a commit without parents: the branch's first commit is the repository without the bug, its second has
    the tests. The step that hides the repository's history removes other refs to these commits.
    """
    name = quote(branch(row))
    return _script(
        testbed,
        *_checkout(name),
        f"start=$({_COMMITTER} git commit-tree -m 'Start' 'HEAD^{{tree}}')",
        'git checkout -q --detach "$start"',
        f"git branch -q -D {name} 2>/dev/null || true",
        remove_bytecode("."),  # perhaps of the repository without the bug, or named like the tests
    )


def prepare_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that brings a grading sandbox to the bug with its tests, before a patch is applied."""
    return _script(testbed, *_checkout(quote(branch(row))), "git checkout -q HEAD~1")


def restore_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return a script that restores the files of the listed tests; run between the patch and the tests.

    It restores file by file: git restores none of several files if one is unknown. Ids of Go name no file, so all Go
    tests are restored.
    """
    files = [quote(file) for file in list_test_files(row)] or ["'*_test.go'"]
    return _script(testbed, *(f"git checkout -q HEAD -- {file} || true" for file in files))


def eval_script(row: SourceRow, testbed: str = TESTBED) -> str:
    """Return the script whose output is the log that ``judge`` reads, as swesmith writes ``/eval.sh``.

    It must end within ``profile_of(row).timeout_s``. Raises ConfigError for a repository without a known profile.
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
    here, there = f"refs/heads/{name}", f"refs/remotes/origin/{name}"
    return [
        f"start=$(git rev-parse -q --verify {here} || git rev-parse -q --verify {there}"
        f" || {{ git fetch -q origin {name}:{there} 2>.git/fetched && git rev-parse -q --verify {there}; }})"
        f" || {{ cat .git/fetched >&2; ! grep -q 'find remote ref' .git/fetched || exit {NO_BRANCH};"
        f" exit {NOT_FETCHED}; }}",
        'git checkout -q --detach "$start"',
    ]


def _script(testbed: str, *commands: str) -> str:
    return "\n".join(["#!/bin/bash", "set -eu", TRUST_REPOSITORY, f"cd {quote(testbed)}", *commands]) + "\n"
