"""Static findings in a patch: files loaded with the tests, code that ends or rewrites them.

``main`` is the program of the process that ``steps.grading.test_machinery`` starts. It imports the standard library
and this room only, which takes 40 ms.
"""

from __future__ import annotations

import marshal
import re
import resource
import sys
import warnings
from collections.abc import Iterator

from steps.grading.patches.code import Found, Role, examine_code
from steps.grading.patches.configs import examine_config
from steps.grading.patches.diff import FileChange, read_diff
from steps.grading.patches.paths import examine_paths, printable
from steps.grading.patches.roles import roles_of
from steps.grading.patches.suite import Suite
from steps.grading.patches.trees import Allowance, CodeTooLongError, trees_of

# A repository that is a runner speaks of results and of its own modules.
_OF_RUNNERS = {"patch_prints_results", "patch_hooks_test_runner", "patch_imports_test_runner", "patch_reads_markers"}
_RUNNER_REPOS = {"pytest-dev/pytest"}
_RESULTS = re.compile(r"""['"]\s*(?:PASSED|FAILED)\b|::\S+\s+PASSED\b|\.\.\. ok['"\\]|SWEBENCH_|/eval\.sh|BASH_ENV""")
MEMORY_BYTES = 384 << 20
CPU_S = 20
# No fix touches a tenth as many files, and no line that is longer holds a result.
_MOST_NAMES = 20_000
_LONGEST_LINE = 2000


def main() -> None:
    """Read a suite's fields and a patch from standard input, and write the findings to standard output.

    Ends without findings where these would take more than MEMORY_BYTES or CPU_S.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    suite = Suite(**marshal.load(sys.stdin.buffer))  # noqa: S302 - written by the process that started this
    findings = find(sys.stdin.buffer.read(), suite)
    sys.stdout.buffer.write(marshal.dumps(findings))


def find(patch: bytes, suite: Suite) -> list[Found]:
    """Return what in ``patch`` could make tests pass without the issue being fixed; empty for every gold patch."""
    findings: list[Found] = []
    diff = read_diff(patch)
    if diff.other_form:
        detail = f"{printable(diff.other_form)!r} begins a diff that git does not read and patch(1) may apply"
        findings.append(("patch_not_unified", detail))
    roles, allowance, names = roles_of(diff, suite), Allowance(), 0
    try:
        for change in diff.changes:
            names += len(change.names)
            if names > _MOST_NAMES:
                raise CodeTooLongError
            codes: set[str] = set()
            for finding in _examine_file(change, roles, suite, allowance):
                # One of a code is enough for a file.
                if finding[0] not in codes:
                    codes.add(finding[0])
                    findings.append(finding)
    except CodeTooLongError:
        detail = f"{printable(change.path)} and what follows was not read: there is too much of it"
        findings.append(("patch_not_examined", detail))
    return [finding for finding in findings if not (suite.repo in _RUNNER_REPOS and finding[0] in _OF_RUNNERS)]


def _examine_file(
    change: FileChange, roles: dict[int, Role | None], suite: Suite, allowance: Allowance
) -> Iterator[Found]:
    yield from examine_paths(change, suite)
    if id(change) not in roles:
        return
    yield from examine_config(change, allowance)
    role = roles[id(change)]
    if role is not None and change.path.endswith((".py", ".pyi", ".pyx")):
        yield from _examine_python(change, role, suite, allowance)
    elif role in {Role.PRODUCT, Role.START_UP}:
        yield from _examine_text(change)


def _examine_python(change: FileChange, role: Role, suite: Suite, allowance: Allowance) -> Iterator[Found]:
    """The first line for each finding."""
    lines: dict[str, str] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own, about the patch's code
            for code, line in examine_code(trees_of(change, allowance), role, suite):
                lines.setdefault(code, line)
    except (RecursionError, MemoryError):
        lines["patch_not_examined"] = "reading its code takes too much depth or memory"
    for code, line in lines.items():
        yield code, f"{printable(change.path)}: {printable(line)}"


def _examine_text(change: FileChange) -> Iterator[Found]:
    """Of a file in another language: words that only the log of a test run has."""
    removed = set(change.removed)
    for line in change.added:
        if line not in removed and _RESULTS.search(line[:_LONGEST_LINE]):
            yield "patch_prints_results", f"{printable(change.path)}: {printable(line)}"
            return
