"""Shell scripts for an agent's commands, which save the shell's state and restore it for the next command.

A command's words appear in no other command line: ``pkill -f word`` would find them.
"""

from __future__ import annotations

import shlex

from swe_argo.steps.sandbox.job_script import quote_in_pieces

NO_SESSION = 125
"""Exit code if the state's folder cannot be created."""


def one_word(text: str, *, is_visible: bool) -> str:
    """Return a text as one shell word on one line, hidden from ``pkill -f word`` unless it is ``is_visible``."""
    word = shlex.quote(text) if is_visible else quote_in_pieces(text.encode("utf-8", "surrogateescape"))
    return word.replace("\n", "'$'\\n''")


# SWE-bench images activate their conda environment in .bashrc, which a plain `bash -c` would miss. BASH_ENV is no
# solution: a .bashrc that runs a bash script, as pyenv's does, would be read by that script, too, without end. A shell
# that continues from its last command has the variables already.
ACTIVATE = '[ -n "$BASH_ENV" ] || [ ! -f "$HOME/.bashrc" ] || . "$HOME/.bashrc"; '
# Each script is one line, so that line numbers in messages are the command's. Readonly variables cannot be declared
# again, which is not the command's fault: hence no messages and no errexit. A new state is written beside the last one,
# so a complete one exists whenever a command is killed, without any program.
_RESTORE_STATE = (
    f'[ -f "$__home/slot" ] || {{ {ACTIVATE}}}; '
    r"""unset BASH_ENV; cd '@workdir@'; shopt -s expand_aliases; """
    r"""__slot=0; [ ! -f "$__home/slot" ] || read -r __slot <"$__home/slot"; """
    r"""[ ! -f "$__home/state.$__slot" ] || . "$__home/state.$__slot" 2>/dev/null || :; """
    r"""__keep() { { __slot=0; [ ! -f "$__home/slot" ] || read -r __slot <"$__home/slot"; __slot=$((1-__slot)); """
    r"""{ set +o; declare -p; declare -f; shopt -p; umask -p; printf "cd -- %q\n" "$PWD"; alias -p; } """
    r""">|"$__home/state.$__slot" && echo $__slot >|"$__home/slot"; """
    r"""[ -z "$1" ] || { printf "%s\n" "$2" "$PWD"; type -P python || echo; } >|"$1"; } 2>/dev/null; }; """
    r"""trap "{ set +x; } 2>/dev/null; __keep """
)


def in_new_shell(command: str) -> str:
    """Return a script that runs a command in a new bash. ``command`` is one word (see ``one_word``)."""
    return f"{ACTIVATE}unset BASH_ENV; eval {command}"


def in_session(command: str, home: str, workdir: str, note: str = "", number: int = 0) -> str:
    """Return a script that continues from the state in the folder ``home``, at first in ``workdir``.

    It exits with NO_SESSION if the folder cannot be created. All is on one line: line numbers in messages are the
    command's. The final state goes to the file ``note``, a line each: the ``number``, the folder, its Python.
    """
    enter = f'__home="{home}"; [ -d "$__home" ] || mkdir -p "$__home" || exit {NO_SESSION}; '
    return f"""{enter}{_RESTORE_STATE.replace("@workdir@", workdir)}'{note}' {number}" EXIT; eval {command}"""
