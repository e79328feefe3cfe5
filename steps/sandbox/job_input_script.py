"""Idempotent shell scripts for a job with open input: send input, close it, interrupt, kill.

``job_script`` describes the files of a job.
"""

from __future__ import annotations

from swe_argo.steps.sandbox.job_script import INLINE_BYTES, quote_in_pieces

STDIN_BYTES = 4 << 20
"""Longer input is sent as a file, in pieces."""
_READY_TURNS = 600
"""Maximum checks, 0.05 s apart, whether a job is ready for input."""


def input_script(path: str, number: int, data: bytes) -> tuple[str, bytes]:
    """Return the script that sends input number ``number`` to a job, and the script's stdin. Idempotent.

    It does not wait for a reader: a background process writes, after the writer of the previous input has ended, and
    holds the input open. Input of more than STDIN_BYTES must already be in ``<path>.input<number>``. If the script's
    stdin arrives incomplete, nothing is sent and the exit code is not 0.
    """
    file = f"$d.input{number}"
    take, write = "", f"cat {file} && rm -f {file}"
    if len(data) <= INLINE_BYTES:
        write = f"printf %s {quote_in_pieces(data)}"
    elif len(data) <= STDIN_BYTES:
        take = _RECEIVE_INPUT.format(file=file, number=number, size=len(data))
    script = _INPUT.format(d=path, take=take, ready=_ready(path), number=number, before=number - 1, write=write)
    return f"({script}) || exit 1\n", data if take else b""


def close_input_script(path: str) -> str:
    """Return the script that closes a job's input, by the signal USR1 to the job's leader."""
    return f"{{ {_ready(path)}read -r p <{path}.lock && kill -USR1 $p; }} 2>/dev/null; exit 0\n"


def interrupt_script(path: str, number: int) -> str:
    """Return the script that interrupts a job for the ``number``-th time. Idempotent."""
    act = f"{_ready(path, 'pid')}read -r p <{path}.pid && kill -INT -$p"
    return f"(set -C; : >{path}.i{number} && {{ {act}; }}) 2>/dev/null; exit 0\n"


def kill_script(path: str) -> str:
    """Return the script that ends a job's session: SIGTERM, and SIGKILL after 2 s. It waits up to 10 s for the end."""
    return _KILL.format(d=path, ready=_ready(path, "pid"))


def _ready(path: str, file: str = "copy") -> str:
    """Return the script that waits until a job has written ``<path>.<file>``, and exits if the job is gone."""
    return (
        f"n=0; while [ ! -s {path}.{file} ]; do\n"
        f"[ -e {path}.in ] && [ ! -s {path}.rc ] && [ $n -lt {_READY_TURNS} ] || exit 0\nsleep 0.05; n=$((n+1)); done\n"
    )


# Opening the FIFO for reading as well keeps the open for writing from blocking. It is then held for writing only, so
# that a writer to an ended job ends by SIGPIPE. Two concurrent writers would mix their data: `.w<number>` is created by
# the writer of that input (`set -C` lets only one create it), and is not empty once all of it is written.
_INPUT = """d={d}
exec 2>/dev/null
{take}{ready}(set -C; : >$d.w{number}) || exit 0
exec 5<>$d.in 4>$d.in 5<&-
{{ while [ {before} != 0 ] && [ -e $d.in ] && [ ! -s $d.w{before} ] && [ ! -s $d.rc ]; do sleep 0.1; done
{{ {write}; }} >&4 && echo written >$d.w{number}; }} >/dev/null </dev/null &
exit 0
"""

# Reads an input of known size from the script's stdin into a file, unless it was already taken.
_RECEIVE_INPUT = """[ -e $d.w{number} ] ||
{{ head -c {size} >{file}.$$ && [ $(wc -c <{file}.$$) = {size} ] && mv {file}.$$ {file}; }} || exit 1
"""

# In /proc/PID/stat after the name in brackets, $4 is the session.
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
