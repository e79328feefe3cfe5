"""The second channel on real shells."""

from __future__ import annotations

import pytest

from swe_argo.steps.grading import official
from swe_argo.steps.grading.exit_code_channel import EXIT_CODE_VARIABLE, ChannelReport, ExitCodeChannel
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.steps.grading.logs import make_row

SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
env >.git/env.txt
grep -c BASH_ENV .git/env.txt
bash -c 'echo child'
x=$(echo sub)
( echo subshell )
source /dev/stdin <<<'g() { echo sourced; }; g'
f() { echo in function; }
f
no_such_command
false || echo $? "${PIPESTATUS[@]}" $LINENO
: '>>>>> Start Test Output'
bash -c 'exit CODE'
: '>>>>> End Test Output'
git status --short
"""


def script_of(text: str, code: int = 3) -> bytes:
    spec = official.make_test_spec(make_row(eval_script=text.replace("CODE", str(code))))
    script: str = spec.eval_script
    return script.encode()


def run_watched(box: Sandbox, script: bytes, *test_files: str) -> tuple[bytes, ChannelReport]:
    """Run a script under the channel; return its log and the report."""
    box.write("/eval.sh", script)
    channel = ExitCodeChannel(test_files)
    result = box.exec(channel.open(box), timeout_s=30, merge=True)
    return result.stdout, channel.read_report(box, script)


@pytest.mark.parametrize("code", [0, 3, 137])
@pytest.mark.parametrize("test_files", [(), ("tests/test_calc.py", "none.py")], ids=["no files", "files"])
def test_channel_keeps_code_and_log(box: Sandbox, code: int, test_files: tuple[str, ...]) -> None:
    script = script_of(SCRIPT, code)
    box.write("/eval.sh", script)
    plain = box.exec("/bin/bash /eval.sh", timeout_s=30, merge=True)
    log, report = run_watched(box, script, *test_files)
    assert (report.exit_code, report.script_intact) == (code, True)
    assert log == plain.stdout
    assert f">>>>> Test Exit Code: {code}".encode() in log


def test_channel_is_invisible_to_tests(box: Sandbox) -> None:
    box.write("/eval.sh", script_of(SCRIPT.replace("bash -c 'exit CODE'", "ls -A /tmp; env")))
    channel = ExitCodeChannel(["tests/test_calc.py"])
    result = box.exec(channel.open(box), timeout_s=30, merge=True)
    for name in (channel._hook, channel._file):
        assert name.rsplit("/", 1)[-1].encode() not in result.stdout
    assert b"BASH_ENV=" not in result.stdout
    other = ExitCodeChannel()
    assert len({channel._hook, channel._file, other._hook, other._file}) == 4


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_early_exit_has_no_exit_code(box: Sandbox, end: str) -> None:
    script = script_of(f"#!/bin/bash\nset -uxo pipefail\n{end}\n: '>>>>> End Test Output'\n")
    assert run_watched(box, script)[1].exit_code is None


def test_rewritten_script_is_noticed(box: Sandbox) -> None:
    script = script_of(SCRIPT.replace("bash -c 'exit CODE'", "echo '# more' >>/eval.sh"))
    assert not run_watched(box, script)[1].script_intact


CHANGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("python tests/test_calc.py; touch tests/test_calc.py tests/new.py", ()),
    "content": ("echo '# more' >>tests/test_calc.py; cd /", ("tests/test_calc.py",)),
    "two files": ("rm -r tests calc.py", ("tests/test_calc.py", "/testbed/calc.py")),
    "an endless file": ("ln -sf /dev/zero tests/test_calc.py", ("tests/test_calc.py",)),
    "a pipe": ("rm tests/test_calc.py; mkfifo tests/test_calc.py", ("tests/test_calc.py",)),
    "content and back": ("git mv tests t; git mv t tests", ()),
    "no END": ("rm tests/test_calc.py; exit 1", ()),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("marker", [":", "echo"])
def test_channel_reports_changed_files(box: Sandbox, name: str, marker: str) -> None:
    command, changed = CHANGES[name]
    text = SCRIPT.replace("bash -c 'exit CODE'", command).replace(": '>>>>>", f"{marker} '>>>>>")
    script = script_of(text + "git checkout -q HEAD tests\n")
    _, report = run_watched(box, script, "tests/test_calc.py", "/testbed/calc.py", "none.py", "it's.py")
    assert sorted(report.changed_files) == sorted(changed)


def test_variable_matches_the_harness() -> None:
    assert official.harness_constants().TEST_EXIT_CODE_VAR == EXIT_CODE_VARIABLE
