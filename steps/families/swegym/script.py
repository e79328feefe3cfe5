"""The test script for an image of SWE-Gym.

Source: SWE-Gym/SWE-Bench-Package, swegym/harness/test_spec.py (``make_eval_script_list``).
"""

from __future__ import annotations

from shlex import quote

from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.issue_columns import hidden_patch
from swe_argo.steps.families.swegym.rows import base_commit, list_files_to_reset, list_files_to_run
from swe_argo.steps.families.swegym.specs import spec_of
from swe_argo.steps.grading.exit_code_channel import EXIT_CODE_VARIABLE

TESTBED = "/testbed"
TIMEOUT_S = 1800
_ACTIVATE = ("source /opt/miniconda3/bin/activate", "conda activate testbed")
_END = "EOF_114329324912"


def eval_script(row: SourceRow, testbed: str = TESTBED, *, install: bool = True) -> str:
    """Return the script whose output is the log that ``judge`` reads, within ``TIMEOUT_S``.

    SWE-Gym reinstalls the repository, which may need the network; without ``install`` the image's installation stays.
    Raises ConfigError for a repository without known commands.
    """
    spec, commit = spec_of(row), base_commit(row)
    files = " ".join(quote(file) for file in list_files_to_reset(row))
    # If all files are new, there is nothing to reset, and SWE-Gym's command would check out the commit.
    reset = [f"git checkout {commit} {files}"] if files else []
    patch = hidden_patch(row)
    end = _END  # a delimiter that is no line of the patch
    while end in patch.split("\n"):
        end += "_"
    lines = [
        "#!/bin/bash",
        "set -xo pipefail",
        *_ACTIVATE,
        f"cd {quote(testbed)}",
        *([spec.before] if spec.before else []),
        f"git config --global --add safe.directory {quote(testbed)}",
        f"cd {quote(testbed)}",
        "git status",
        "git show",
        f"git diff {commit}",
        *_ACTIVATE,
        *([spec.install] if install else []),
        *reset,
        f"git apply -v - <<'{end}'\n{patch}\n{end}",
        " ".join([spec.test_command, *(quote(file) for file in list_files_to_run(row))]),
        f"{{ {EXIT_CODE_VARIABLE}=$?; }} 2>/dev/null",
        *reset,
    ]
    return "\n".join(lines) + "\n"
