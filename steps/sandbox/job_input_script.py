"""The shell side of talking to a job whose input is open: input, its end, interrupts, and the job's own end.

Each script is safe to run any number of times; the files of a job are those of job_script.
"""

from __future__ import annotations

from swe_argo.steps.sandbox.job_script import INLINE_BYTES, in_pieces

STDIN_BYTES = 4 << 20
"""Longer input is sent as a file, in pieces."""
_READY_TURNS = 600
"""How often, every 0.05 s, who talks to a job looks whether it listens yet."""


def input_script(stem: str, number: int, data: bytes) -> tuple[str, bytes]:
    """The script that gives input number ``number`` to a job, once however often it runs, and its own stdin.

    It waits for no reader: what writes goes on alone, after whatever wrote the one before, and holds the input open, so
    that an end of the input comes behind it. Other scripts may follow. Input of more than STDIN_BYTES must be in
    ``<stem>.input<number>`` already. Where its stdin did not come whole it is no input yet, and the exit code is not 0.
    """
    file = f"$d.input{number}"
    take, write = "", f"cat {file} && rm -f {file}"
    if len(data) <= INLINE_BYTES:
        write = f"printf %s {in_pieces(data)}"
    elif len(data) <= STDIN_BYTES:
        take = _TAKE.format(file=file, number=number, size=len(data))
    script = _INPUT.format(d=stem, take=take, ready=_ready(stem), number=number, before=number - 1, write=write)
    return f"({script}) || exit 1\n", data if take else b""


def close_input_script(stem: str) -> str:
    """The script that ends a job's input."""
    return f"{{ {_ready(stem)}read -r p <{stem}.lock && kill -USR1 $p; }} 2>/dev/null; exit 0\n"


def interrupt_script(stem: str, number: int) -> str:
    """The script that interrupts a job for the ``number``-th time, once however often it runs."""
    act = f"{_ready(stem, 'pid')}read -r p <{stem}.pid && kill -INT -$p"
    return f"(set -C; : >{stem}.i{number} && {{ {act}; }}) 2>/dev/null; exit 0\n"


def kill_script(stem: str) -> str:
    """The script that ends a job whose input is open, with its whole session; it takes up to some twelve seconds."""
    return _KILL.format(d=stem, ready=_ready(stem, "pid"))


def _ready(stem: str, file: str = "copy") -> str:
    """Wait for a job that was only just started to hold its input open, or to lead its session; else exit."""
    return (
        f"n=0; while [ ! -s {stem}.{file} ]; do\n"
        f"[ -e {stem}.in ] && [ ! -s {stem}.rc ] && [ $n -lt {_READY_TURNS} ] || exit 0\nsleep 0.05; n=$((n+1)); done\n"
    )


# Opened for reading too while it is opened for writing, it waits for nobody; held for writing alone, whoever writes to
# a job that is gone ends by SIGPIPE. Two who wrote at once would write in any order.
_INPUT = """d={d}
exec 2>/dev/null
{take}{ready}(set -C; : >$d.w{number}) || exit 0
exec 5<>$d.in 4>$d.in 5<&-
{{ while [ {before} != 0 ] && [ -e $d.in ] && [ ! -s $d.w{before} ] && [ ! -s $d.rc ]; do sleep 0.1; done
{{ {write}; }} >&4 && echo written >$d.w{number}; }} >/dev/null </dev/null &
exit 0
"""

_TAKE = """[ -e $d.w{number} ] ||
{{ head -c {size} >{file}.$$ && [ $(wc -c <{file}.$$) = {size} ] && mv {file}.$$ {file}; }} || exit 1
"""

_KILL = """d={d}
exec 2>/dev/null
{ready}read -r pid <$d.pid || exit 0
kill -TERM -$pid; n=0
while [ ! -s $d.rc ] && [ $n -lt 10 ]; do sleep 0.2; n=$((n+1)); done
for p in /proc/[0-9]*; do
read -r s <$p/stat || continue
set -- ${{s##*) }}
[ "$4" != "$pid" ] || kill -KILL ${{p#/proc/}}
done
n=0; while [ ! -s $d.rc ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
exit 0
"""
