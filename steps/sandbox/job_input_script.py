"""Shell scripts that talk to a job with open input: send input, close it, interrupt, kill.

Each script is safe to run any number of times; the files of a job are those of job_script.
"""

from __future__ import annotations

from swe_argo.steps.sandbox.job_script import INLINE_BYTES, in_pieces

STDIN_BYTES = 4 << 20
"""Longer input is sent as a file, in pieces."""
_READY_TURNS = 600
"""Maximum checks, 0.05 s apart, whether a job is ready for input."""


def input_script(stem: str, number: int, data: bytes) -> tuple[str, bytes]:
    """Return the script that sends input number ``number`` to a job, and the script's stdin. Idempotent.

    It does not wait for a reader: a background writer goes on, after that of the previous input, and holds the input
    open, so that its end comes later. Other scripts may follow. Input of more than STDIN_BYTES must already be in
    ``<stem>.input<number>``. If the script's stdin arrives incomplete, nothing is sent and the exit code is not 0.
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
    """Return the script that closes a job's input."""
    return f"{{ {_ready(stem)}read -r p <{stem}.lock && kill -USR1 $p; }} 2>/dev/null; exit 0\n"


def interrupt_script(stem: str, number: int) -> str:
    """Return the script that interrupts a job for the ``number``-th time. Idempotent."""
    act = f"{_ready(stem, 'pid')}read -r p <{stem}.pid && kill -INT -$p"
    return f"(set -C; : >{stem}.i{number} && {{ {act}; }}) 2>/dev/null; exit 0\n"


def kill_script(stem: str) -> str:
    """Return the script that kills a job with open input and its whole session; it takes up to about twelve seconds."""
    return _KILL.format(d=stem, ready=_ready(stem, "pid"))


def _ready(stem: str, file: str = "copy") -> str:
    """Return the script that waits until a new job holds its input open, or leads its session, and exits otherwise."""
    return (
        f"n=0; while [ ! -s {stem}.{file} ]; do\n"
        f"[ -e {stem}.in ] && [ ! -s {stem}.rc ] && [ $n -lt {_READY_TURNS} ] || exit 0\nsleep 0.05; n=$((n+1)); done\n"
    )


# Opening the FIFO for reading as well keeps the open for writing from blocking. It is then held for writing only, so
# that a writer to a job that is gone ends by SIGPIPE. Two concurrent writers would write in any order.
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
