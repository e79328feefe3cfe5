"""The shell side of an agent's commands: how one goes on where the last one ended.

The command's words are on no command line but its own: ``pkill -f word`` would find them.
"""

from __future__ import annotations

import shlex

from swe_argo.steps.sandbox.job_script import in_pieces

NO_SESSION = 125
"""Exit code where the folder of the state cannot be made."""


def one_word(text: str, *, in_sight: bool) -> str:
    """A text as one word on one line of shell. Unless it is ``in_sight``, ``pkill -f word`` does not find it there."""
    word = shlex.quote(text) if in_sight else in_pieces(text.encode("utf-8", "surrogateescape"))
    return word.replace("\n", "'$'\\n''")


# What SWE-bench images activate their conda environment in; a plain `bash -c` would miss it. Not by BASH_ENV: a .bashrc
# that runs a script of bash, as pyenv's does, would be read by that one too, and so on for ever. A shell that goes on
# from its last command has the variables already.
ACTIVATE = '[ -n "$BASH_ENV" ] || [ ! -f "$HOME/.bashrc" ] || . "$HOME/.bashrc"; '
# One line each: line numbers in messages are the command's.
# What is readonly cannot be declared again, which is no fault of the command: hence no messages, and no errexit.
# A state is written beside the last one: there is a whole one whenever a command is killed, and no program is needed.
_GO_ON = (
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


def alone(command: str) -> str:
    """A script that runs a command by itself, in a new bash: it is one word (see ``one_word``)."""
    return f"{ACTIVATE}unset BASH_ENV; eval {command}"


def going_on(command: str, home: str, workdir: str, note: str = "", number: int = 0) -> str:
    """A script that runs a command where the last one in the folder ``home`` ended, the first one in ``workdir``.

    It exits with NO_SESSION if that cannot be made. All is on one line: line numbers in messages are the command's. How
    it leaves the shell is told in the file ``note``, a line each: the ``number``, the folder, its Python.
    """
    enter = f'__home="{home}"; [ -d "$__home" ] || mkdir -p "$__home" || exit {NO_SESSION}; '
    return f"""{enter}{_GO_ON.replace("@workdir@", workdir)}'{note}' {number}" EXIT; eval {command}"""
