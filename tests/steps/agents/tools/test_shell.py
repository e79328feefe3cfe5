"""Commands of agents: state between them, their output, and commands that break the shell."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest

from swe_argo.steps.agents.tools.shell import ENDS_BYTES, Patience, Shell
from swe_argo.steps.agents.tools.text import ToolResult
from swe_argo.steps.sandbox.protocol import FLOOD_BYTES, Sandbox

SHORT = Patience(quiet_s=1.0)
LONG = Patience(quiet_s=20.0)


@pytest.fixture
def shell(machine: Sandbox) -> Shell:
    return Shell(machine, persistent=True)


def run(shell: Shell, command: str, timeout_s: float = 30.0) -> ToolResult:
    return shell.run(command, timeout_s=timeout_s)


def begin(shell: Shell, command: str, words: str) -> ToolResult:
    """Start a command, and watch it until it has printed these words."""
    return watch_until(shell, shell.run(command, timeout_s=120, patience=SHORT), words)


def watch_until(shell: Shell, result: ToolResult, words: str) -> ToolResult:
    """Watch a running command until it has printed these words."""
    while words not in result.text:
        assert result.running, result
        more = shell.watch(timeout_s=120, patience=SHORT)
        result = replace(more, text=result.text + more.text)
    return result


# -- how a command ends


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("exit 3", 3),
        ("exec false", 1),
        ("kill $$", 143),
        ("kill -9 $$", 137),
        ("kill 0", 143),
        ("no_such_program", 127),
        ("if; then", 2),
    ],
)
def test_shell_survives_any_exit(shell: Shell, command: str, code: int) -> None:
    assert run(shell, command).exit_code == code
    assert run(shell, "echo alive").text == "alive\n"


# -- what lasts


@pytest.mark.parametrize("patience", [None, Patience(seconds=20)])
def test_session_state_persists(shell: Shell, patience: Patience | None) -> None:
    """As in the one bash of OpenHands and SWE-agent: the folder, variables, functions, aliases, options, the umask."""

    def do(command: str) -> str:
        return shell.run(command, timeout_s=30, patience=patience).text

    do("cd b; export WORD='it''s\nlong'; f() { echo called; }; umask 027; plain=(1 '2 3'); alias ll='echo alias'")
    do("set -u; shopt -s nullglob; readonly fixed=4; declare -A map=([k]=v)")
    assert do('pwd; echo "$WORD"; f; umask; ll') == "/testbed/b\nits\nlong\ncalled\n0027\nalias\n"
    assert do('echo "${plain[1]} $fixed ${map[k]}"; echo none*; echo "${none}" || echo unset').startswith("2 3 4 v\n\n")
    assert "readonly" in do("fixed=5")
    do("set -ex")
    assert do("case $- in *e*) echo still;; esac; set +eu") == "still\n", "but what is traced is not"
    run(shell, "cd /; exit 5")
    assert run(shell, "pwd").text == "/\n"


# -- time


def test_timeout_kills_all_processes(shell: Shell) -> None:
    sleep = f"sleep 7531.{secrets.randbelow(10**9)}"  # a host may have those of other tests
    for timeout_s in (2.0, 20.0):  # a busy machine may need longer to begin
        late = run(shell, f"echo begun; trap '' TERM; {sleep} & {sleep}", timeout_s=timeout_s)
        assert late.timed_out
        assert late.exit_code is None
        if late.text:
            break
    assert late.text.startswith("begun\n")
    remaining = run(
        shell, f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep -c '^{sleep}'"
    )
    assert remaining.text.endswith("0\n")


def test_background_process_survives(shell: Shell) -> None:
    result = run(shell, "(while :; do echo tick; sleep 0.05; done) & echo $! >/tmp/child; echo started")
    assert result.exit_code == 0
    assert "started\n" in result.text
    assert run(shell, "sleep 0.3; kill $(cat /tmp/child) && echo was alive").text == "was alive\n"


# -- output


def test_large_output_keeps_both_ends(shell: Shell) -> None:
    command = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last"
    result = shell.run(command, timeout_s=30, patience=Patience(seconds=30))
    assert result.exit_code == 0
    assert result.text.startswith("first\nxxx")
    assert result.tail is not None
    assert result.tail.endswith("xxx\nlast\n")
    assert len(result.text) + len(result.tail) <= 2 * ENDS_BYTES


def test_endless_output_is_ended(shell: Shell) -> None:
    alone = run(shell, "yes", timeout_s=3)
    assert alone.timed_out
    assert alone.tail is not None
    result = shell.run("yes", timeout_s=60, patience=Patience(seconds=60))
    assert result.exit_code == 137
    assert "MiB" in result.note
    assert FLOOD_BYTES <= 1 << 30
    assert run(shell, 'du -sm "${TMPDIR:-/tmp}" | cut -f1').text.strip() < "9", "what it had printed is removed"


def test_split_character_comes_whole(shell: Shell) -> None:
    first = begin(shell, r"printf 'a\303'; read -r x; printf '\251\n'", "a")
    assert (first.text, first.running) == ("a", True)
    assert shell.send("", timeout_s=120, patience=LONG).text == "é\n"


# -- a command that goes on


def test_silent_command_can_be_awaited(shell: Shell, machine: Sandbox) -> None:
    first = begin(shell, "echo one; until rm go; do sleep 0.1; done 2>/dev/null; echo two", "one\n")
    assert (first.text, first.exit_code, first.running) == ("one\n", None, True)
    assert shell.running
    machine.write("/testbed/go", b"")
    second = shell.watch(timeout_s=120, patience=LONG)
    assert (second.text, second.exit_code, second.running) == ("two\n", 0, False)
    assert not shell.running


def test_running_command_takes_input(shell: Shell) -> None:
    shell.run("read -r a; echo got $a; cat; echo end", timeout_s=120, patience=SHORT)
    answered = watch_until(shell, shell.send("it's 5 $HOME", timeout_s=120, patience=SHORT), "\n")
    assert (answered.text, answered.running) == ("got it's 5 $HOME\n", True)
    ended = shell.close_input(timeout_s=120, patience=LONG)
    assert (ended.text, ended.exit_code) == ("end\n", 0)


def test_running_command_is_interrupted(shell: Shell) -> None:
    slept = "print('ready', flush=True); time.sleep(600)"
    script = f"import time\ntry:\n  {slept}\nexcept KeyboardInterrupt:\n  print('bye'); exit(5)"
    begin(shell, f'python3 -c "{script}"', "ready\n")
    stopped = shell.interrupt()
    assert (stopped.text, stopped.exit_code) == ("bye\n", 5)
    assert not shell.running
    begin(shell, "trap '' INT; echo deaf; while :; do sleep 0.1; done", "deaf\n")
    shell.interrupt()  # what does not listen is killed
    assert run(shell, "echo free").text == "free\n"


def test_patience_does_not_extend_timeout(shell: Shell) -> None:
    assert shell.run("sleep 60", timeout_s=5, patience=SHORT).running
    late = shell.watch(timeout_s=5, patience=LONG)
    assert late.timed_out
    assert not shell.running


# -- machines in a bad way


def test_shell_works_without_temp_folder(machine: Sandbox) -> None:
    shell = Shell(machine, persistent=True)
    shell._home = "/proc/nothing"
    result = run(shell, "echo works; exit 2")
    assert (result.text, result.exit_code) == ("works\n", 2)
    assert "temporary files" in result.note


def test_wiped_temp_folder_loses_state(shell: Shell) -> None:
    run(shell, "cd b")
    wiped = run(shell, 'echo before; rm -rf "${TMPDIR:-/tmp}"/.shell-*; echo after; exit 4')
    assert (wiped.text, wiped.exit_code, wiped.note) == ("before\nafter\n", 4, "")
    assert run(shell, "pwd").text == "/testbed\n"


# -- what the sandbox gives


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo 1; echo 2 >&2; echo 3; echo 4 >/dev/stderr", "1\n2\n3\n4\n"),
        ("mkdir -p gone; cd gone; rm -rf ../gone", ""),
        ("echo here", "here\n"),
        (r"printf 'a\0b\377\303\251\033[1m\n'", "a\ufffdb\ufffdé\x1b[1m\n"),
        (f"head -c {2 * ENDS_BYTES} /dev/zero | tr '\\0' x", "x" * 2 * ENDS_BYTES),
        ("seq 1 3000 | tail -1", "3000\n"),
        ("cd /; cat /testbed/a.py; cd /testbed/b; pwd", "a = 2\n/testbed/b\n"),
    ],
)
@pytest.mark.parametrize("patience", [None, Patience(seconds=20)], ids=["started", "run"])
def test_shell_returns_all_output(machine: Sandbox, patience: Patience | None, command: str, text: str) -> None:
    shell = Shell(machine, persistent=True)
    result = shell.run(command, timeout_s=30, patience=patience)
    assert (result.text, result.tail) == (text, None)


def test_command_input_is_at_its_end(shell: Shell) -> None:
    result = run(shell, "read -r answer; echo [$answer]; cat; python3 -c 'input()'")
    assert result.text.startswith("[]\n")
    assert "EOFError" in result.text


def test_output_is_cut_at_characters(shell: Shell) -> None:
    result = run(shell, "printf x; yes é | tr -d '\\n' | head -c 2000000")
    assert (set(result.text), set(result.tail or "")) == ({"x", "é"}, {"é"})


def test_errors_name_the_script_line(machine: Sandbox) -> None:
    for persistent in (True, False):
        shell = Shell(machine, persistent=persistent)
        assert "line 2: nothing_of_that_name" in run(shell, "true\nnothing_of_that_name").text
    run(shell, "cd b; export WORD=1")
    assert run(shell, "pwd; echo [$WORD]").text == "/testbed\n[]\n", "without a session, each command starts fresh"


def test_shell_survives_killing_all(shell: Shell, kind: str) -> None:
    if kind == "host":
        pytest.skip("without a namespace this would end the tests too")
    # The process that copies the output is killed with the others: wait until it has copied.
    assert run(shell, "echo before; sleep 2; kill -9 -1").text.startswith("before\n")
    result = shell.run("echo before; kill -9 -1; kill -9 $$", timeout_s=30, patience=Patience(seconds=20))
    assert (result.exit_code, "killed" in result.note) == (137, True)
    killed = run(shell, "echo before; sleep 2; pkill -9 bash")
    assert (killed.text, killed.exit_code) == ("before\n", 137)
    hidden = run(shell, "sleep 0.2; pkill -f 'marked_words_4711'; echo went on")
    assert hidden.text == "went on\n", "the command is not on a command line"
    assert run(shell, "pwd").text == "/testbed\n"


@pytest.mark.parametrize("persistent", [True, False])
def test_bashrc_is_read_by_each_shell(machine: Sandbox, persistent: bool) -> None:
    """Scripts do not read it: lines like pyenv's would start them for ever."""
    lines = "[ \\$SHLVL -lt 9 ] || exit\nexport ACTIVE=conda\necho x >>~/sourced\nbash -c true"
    machine.exec(f'mkdir -p ~; printf %s "{lines}" >~/.bashrc', timeout_s=60)
    shell, patient = Shell(machine, persistent=persistent), Shell(machine, persistent=True)
    try:
        assert run(shell, "echo $ACTIVE; echo [$BASH_ENV]").text == "conda\n[]\n"
        assert run(shell, "echo $ACTIVE").text == "conda\n"
        assert run(shell, "wc -l <~/sourced").text.strip() == ("1" if persistent else "3"), (
            "a session is active already"
        )
        machine.exec("rm ~/sourced", timeout_s=60)
        assert patient.run("wc -l <~/sourced", timeout_s=30, patience=Patience(seconds=20)).text.strip() == "1"
    finally:
        machine.exec("rm -f ~/.bashrc ~/sourced", timeout_s=60)
