"""Scripts for an image of SWE-rebench.

Sources: V2, SWE-rebench/SWE-rebench-V2, scripts/eval.py (``run_in_container``). V1, SWE-rebench/SWE-bench-fork,
swebench/harness/test_spec/python.py (``make_eval_script_list_py``).
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from swe_argo.steps.families import issue_columns
from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.machine_setup import TRUST_REPOSITORY
from swe_argo.steps.families.rebench import rows
from swe_argo.steps.families.test_patches import files_before, files_to_run
from swe_argo.steps.grading.exit_code_channel import EXIT_CODE_VARIABLE

TIMEOUT_S = 1800
V2_APPLY: Final = "git apply -v --3way --recount --ignore-space-change --whitespace=nowarn"
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
_END_OF_PATCH = "EOF_114329324912"
_ACTIVATE = ("source /opt/miniconda3/bin/activate", "conda activate testbed")


def reset_script(workdir: str) -> str:
    """Return a script that reverts the image's changes of tracked files, as V2 does."""
    return f"set -eu\n{TRUST_REPOSITORY}\ncd {quote(workdir)}\ngit reset -q --hard HEAD\n"


def test_script(row: SourceRow) -> str:
    """Return the script whose output is the log that ``judge`` reads."""
    return _v2_script(row) if rows.is_v2(row) else _v1_script(row)


def _v2_script(row: SourceRow) -> str:
    """Return V2's script, which ends at a failed command; stderr follows stdout in the log."""
    lines = [
        "#!/bin/bash",
        TRUST_REPOSITORY,
        "export _JAVA_OPTIONS=-Djava.net.preferIPv6Addresses=false",
        f"cd {quote(rows.workdir(row))}",
        "errors=$(mktemp)",
        "(",
        "set -e",
        # --recount would count an extra line at the end.
        _apply(V2_APPLY, issue_columns.hidden_patch(row).removesuffix("\n")),
        *rows.test_commands(row),
        ') 2>"$errors"',
        f"{EXIT_CODE_VARIABLE}=$?",
        'cat "$errors"',
        'rm -f "$errors"',
    ]
    return "\n".join(lines) + "\n"


def _v1_script(row: SourceRow) -> str:
    """Return V1's script: SWE-bench's of 2025 with the row's commands."""
    commit, workdir = rows.base_commit(row), rows.workdir(row)
    patch = issue_columns.hidden_patch(row)
    files = " ".join(quote(file) for file in files_before(patch))
    # If all files are new, there is nothing to reset, and the fork's command would check out the commit.
    reset = [f"git checkout {commit} {files}"] if files else []
    install = rows.install_command(row)
    lines = [
        "#!/bin/bash",
        "set -uxo pipefail",
        *_ACTIVATE,
        f"cd {workdir}",
        f"git config --global --add safe.directory {workdir}",
        f"cd {workdir}",
        "git status",
        "git show",
        f"git -c core.fileMode=false diff {commit}",
        *_ACTIVATE,
        *([install] if install else []),
        *reset,
        _apply("git apply -v", patch),
        f": '{START}'",
        " ".join([*rows.test_commands(row), *(quote(file) for file in files_to_run(patch))]),
        f"{{ {EXIT_CODE_VARIABLE}=$?; }} 2>/dev/null",
        f": '{END}'",
        *reset,
    ]
    return "\n".join(lines) + "\n"


def _apply(command: str, patch: str) -> str:
    """Return the command with the patch as a here-document, whose delimiter is no line of the patch."""
    end = _END_OF_PATCH
    while end in patch.split("\n"):
        end += "_"
    return f"{command} - <<'{end}'\n{patch}\n{end}"
