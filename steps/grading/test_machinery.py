"""Examination of a patch in a child process that may die: findings about changes to the test machinery.

A few lines of Python can make a reader of code take any time, memory or depth. The process has limits for all three;
where it reaches one, the patch is not examined, and that is a finding.
"""

from __future__ import annotations

import marshal
import subprocess
import sys
import tempfile
from pathlib import Path

import steps
from steps.contracts.verdict import Finding
from steps.grading import official
from steps.grading.patches.suite import Suite

TIMEOUT_S = 120.0
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from steps.grading.patches.examiner import main; main()"


def examine_patch(patch: bytes, suite: Suite) -> list[Finding]:
    """Return what in ``patch`` could make tests pass without the issue being fixed; empty for every gold patch.

    Never raises for what a patch holds, and takes bounded time and memory.
    """
    words = official.harness_constants()
    findings = [
        Finding(code="marker_in_patch", detail=f"the patch contains {word!r}, which the log is cut by")
        for word in (words.START_TEST_OUTPUT, words.END_TEST_OUTPUT, words.TEST_EXIT_CODE)
        if word.encode() in patch
    ]
    if not patch:
        return findings
    try:
        output = _run_examiner(patch, suite)
    except (OSError, subprocess.SubprocessError) as error:
        limit = "time" if isinstance(error, subprocess.TimeoutExpired) else "time or memory"
        detail = f"examining the patch ({len(patch)} bytes) exceeded its {limit} limit"
        return [*findings, Finding(code="patch_not_examined", detail=detail)]
    found = marshal.loads(output)  # noqa: S302 - written by a program of ours
    return [*findings, *(Finding(code=code, detail=detail) for code, detail in found)]


def _run_examiner(patch: bytes, suite: Suite) -> bytes:
    """Return what the examiner printed. Raises OSError, or SubprocessError where it died or took too long."""
    with tempfile.TemporaryFile() as job:
        job.write(marshal.dumps(vars(suite)))
        job.write(patch)
        job.seek(0)
        # Without site-packages it starts in half the time.
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(Path(steps.__file__).parents[1])]
        return subprocess.run(
            command, stdin=job, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True
        ).stdout
