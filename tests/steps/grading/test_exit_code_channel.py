"""The second channel on real shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

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


def hear_run(box: Sandbox, script: bytes, *test_files: str) -> tuple[bytes, ChannelReport]:
    """Run a script under the channel: its log, and the report."""
    box.write("/eval.sh", script)
    channel = ExitCodeChannel(test_files)
    result = box.exec(channel.open(box), timeout_s=30, merge=True)
    return result.stdout, channel.hear(box, script)


@pytest.mark.parametrize("code", [0, 3, 137])
@pytest.mark.parametrize("test_files", [(), ("tests/test_calc.py", "none.py")], ids=["no files", "files"])
def test_the_exit_code_comes_through_and_the_log_stays_the_same(
    box: Sandbox, code: int, test_files: tuple[str, ...]
) -> None:
    script = script_of(SCRIPT, code)
    box.write("/eval.sh", script)
    plain = box.exec("/bin/bash /eval.sh", timeout_s=30, merge=True)
    channel = ExitCodeChannel(test_files)
    watched = box.exec(channel.open(box), timeout_s=30, merge=True)
    heard = channel.hear(box, script)
    assert heard.exit_code == code
    assert heard.script_intact
    assert watched.stdout == plain.stdout
    assert watched.exit_code == plain.exit_code
    assert f">>>>> Test Exit Code: {code}".encode() in watched.stdout


def test_neither_children_nor_the_scripts_own_trace_see_the_channel(box: Sandbox) -> None:
    text = SCRIPT.replace("bash -c 'exit CODE'", "ls -A /tmp; env")
    script = script_of(text)
    box.write("/eval.sh", script)
    channel = ExitCodeChannel(["tests/test_calc.py"])
    result = box.exec(channel.open(box), timeout_s=30, merge=True)
    for name in (channel._hook, channel._file):
        assert name.rsplit("/", 1)[-1].encode() not in result.stdout
    assert b"BASH_ENV=" not in result.stdout


def test_two_runs_have_no_name_in_common() -> None:
    one, two = ExitCodeChannel(), ExitCodeChannel()
    assert len({one._hook, one._file, two._hook, two._file}) == 4


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$"])
def test_a_shell_that_never_ran_the_tests_says_nothing(box: Sandbox, end: str) -> None:
    script = script_of(f"#!/bin/bash\nset -uxo pipefail\n{end}\n: '>>>>> End Test Output'\n")
    assert hear_run(box, script)[1].exit_code is None


def test_a_script_that_tests_rewrite_is_noticed(box: Sandbox) -> None:
    script = script_of(SCRIPT.replace("bash -c 'exit CODE'", "echo '# more' >>/eval.sh"))
    assert not hear_run(box, script)[1].script_intact


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
def test_channel_reports_test_files_changed_by_the_end(box: Sandbox, name: str, marker: str) -> None:
    command, changed = CHANGES[name]
    text = SCRIPT.replace("bash -c 'exit CODE'", command).replace(": '>>>>>", f"{marker} '>>>>>")
    script = script_of(text + "git checkout -q HEAD tests\n")
    _, report = hear_run(box, script, "tests/test_calc.py", "/testbed/calc.py", "none.py", "it's.py")
    assert sorted(report.changed_files) == sorted(changed)


def test_the_hook_leaves_the_exit_status_and_variables_of_a_script_alone(tmp_path: Path) -> None:
    probe = tmp_path / "probe.sh"
    probe.write_text('echo "$?" "$-" "$#" "$0" "${BASH_SOURCE[0]}"; compgen -v | sort; trap -p; exit 7\n')
    hook = tmp_path / "hook"
    hook.write_text(ExitCodeChannel(["x"])._script().replace("/tmp/.", f"{tmp_path}/."))
    plain = subprocess.run(["/bin/bash", probe], capture_output=True, text=True, check=False)
    watched = subprocess.run(
        ["/bin/bash", probe], capture_output=True, text=True, check=False, env={"BASH_ENV": str(hook), "PATH": "/bin"}
    )
    assert plain.returncode == watched.returncode == 7
    assert watched.stdout.split("\n")[0] == plain.stdout.split("\n")[0]
    assert watched.stderr == plain.stderr == ""


def test_the_variable_is_the_one_of_the_official_scripts() -> None:
    assert official.harness_constants().TEST_EXIT_CODE_VAR == EXIT_CODE_VARIABLE
