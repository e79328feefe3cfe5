"""The examination of a patch in a process of its own: findings for any patch, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steps.contracts.verdict import Outcome
from steps.grading import official
from steps.grading.exit_code_channel import ChannelReport
from steps.grading.instance_log import InstanceLogWriter
from steps.grading.patches.suite import suite_of
from steps.grading.procedure import ProcedureRun
from steps.grading.test_machinery import examine_patch
from steps.grading.verdict import judge
from tests.steps.grading.logs import F2P, P2P, edit, make_log, make_patch, make_row

SPEC = official.make_test_spec(make_row())
FILE = "diff --git a/f{0}.py b/f{0}.py\nnew file mode 100644\n--- /dev/null\n+++ b/f{0}.py\n@@ -0,0 +1 @@\n+x = 1\n"


def doubled(line: str, times: int) -> bytes:
    """A fix with lines that each make a text twice as long as the one before."""
    lines = ["s0 = 'x'", *(line.format(new=number + 1, old=number) for number in range(times))]
    return edit("calc.py", "".join(f"+{line}\n" for line in lines))


UNBOUNDED: dict[str, Callable[[], bytes]] = {
    "sums of texts": lambda: doubled("s{new} = s{old} + s{old}", 30),
    "sums just below the limit of memory": lambda: doubled("s{new} = s{old} + s{old}", 26),
    "joined texts": lambda: doubled("s{new} = ''.join([s{old}, s{old}])", 60),
    "a million files": lambda: "".join(map(FILE.format, range(1_000_000))).encode(),
    "a file of 100 MB": lambda: b"--- a/data.py\n+++ b/data.py\n@@ -0,0 +1,17000000 @@\n" + b"+x = 1\n" * 17_000_000,
    "100 MB of line ends": lambda: b"\n" * 100_000_000,
}
READ: dict[str, Callable[[], bytes]] = {
    "a line of 20 MB": lambda: b"--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n+" + b"#" * 20_000_000,
    "NUL bytes": lambda: b"\0" * 100_000_000,
    "nested brackets": lambda: edit("calc.py", f"+x = {'(' * 100_000}{')' * 100_000}\n"),
    "a quoted name without end": lambda: b'diff --git "a/' + b"\\" * 50_000_000 + b"\n",
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_patch_gets_official_verdict_when_examination_fails(name: str) -> None:
    log = make_log(f"PASSED {F2P}", f"PASSED {P2P}", code=0).encode()
    run = ProcedureRun(InstanceLogWriter(), log=log, channel_report=ChannelReport(0, script_intact=True))
    verdict = judge(run, SPEC, UNBOUNDED[name]())
    assert verdict.outcome is Outcome.RESOLVED
    assert verdict.integrity.verdict == "suspect"
    assert "patch_not_examined" in {finding.code for finding in verdict.integrity.findings}


@pytest.mark.parametrize("name", READ)
def test_examine_patch_reads_large_and_odd_patches(name: str) -> None:
    assert {finding.code for finding in examine_patch(READ[name](), suite_of(SPEC))} <= {"patch_not_examined"}


def test_examine_patch_reports_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    (finding,) = examine_patch(make_patch("calc.py", "x = 1"), suite_of(SPEC))
    assert finding.code == "patch_not_examined"
    assert "exceeded its time or memory limit" in finding.detail


@pytest.mark.parametrize("word", [">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code"])
def test_examine_patch_finds_markers_in_any_file(word: str) -> None:
    assert [finding.code for finding in examine_patch(make_patch("README.md", word), suite_of(SPEC))] == [
        "marker_in_patch"
    ]
