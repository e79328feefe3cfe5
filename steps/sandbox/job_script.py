"""Shell scripts that start and poll a detached job, safe to run any number of times.

A job is a few files with one path prefix, the stem: ``.lock`` (its leader's pid; whoever creates it runs the job, so it
runs once), ``.out`` and ``.err``, ``.rc``, written last, and ``.cmd``, the command, if it is long. A line counts only
with its newline, so a half-written line is ignored. The streams are FIFOs that ``cat`` copies to files: a command that
opens /dev/stderr for writing would truncate a file, and a child left behind can write on without holding the job. The
leader writes a mark after the command's output. ``.bell`` is a wake-up FIFO: the leader writes to it after its end, one
byte for each of a few waiters; a waiter that opens it before reading ``.rc`` misses neither. The command may write to
it to wake a waiter for output, which may arrive a moment later. A job with open input also has a FIFO ``.in``, the pid
of its session in ``.pid``, and the pid of its output copier in ``.copy``.

Each process started here costs every command a millisecond, so the scripts start as few as possible.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass

KILL_AFTER_S = 2
"""Seconds between SIGTERM and SIGKILL at a timeout."""
INLINE_BYTES = 16 << 10
"""A longer command is sent as a file: Linux takes 128 KiB in one argument, quoting included."""
ARGUMENT_BYTES = 96 << 10
"""A longer command is run as a file, not by ``bash -c``."""
QUIET_TURN_S = 0.5
"""Seconds between measurements when waiting for silence."""
TURN_S = 1.0
"""Seconds between checks that the leader lives: a killed leader writes nothing to the bell."""
_NEVER_S = 10**9


@dataclass(frozen=True)
class ScriptOptions:
    """Options of a command that do not depend on how its job is started."""

    timeout_s: float
    cwd: str
    env: dict[str, str]
    merge: bool
    """Whether stderr goes to stdout."""
    most_bytes: int
    """The rest of a longer stream is dropped: it would fill the machine's disk."""
    forget: list[str]
    """Stems of finished jobs, to remove when this one has ended. Their locks stay, for a delayed start script to
    find."""


def start_script(stem: str, command: bytes, options: ScriptOptions, *, input_open: bool = False) -> str:
    """Return the script that launches the job. The job itself takes the lock: a start that died half-way is repeated.

    A command longer than INLINE_BYTES must be in ``<stem>.cmd`` already. ``input_open``: the command leads a session of
    its own, has a FIFO as its input, and no timeout.
    """
    put, lead = _leader(_DETACHED, stem, command, options, input_open=input_open)
    files = _prepare_files(stem, merge=options.merge, input_open=input_open)
    return f"{files}{put and put + ' '}setsid sh -c {shlex.quote(lead)} >/dev/null 2>&1 </dev/null &\n"


def stream_script(stem: str, command: bytes, options: ScriptOptions) -> str:
    """Return the script that runs the job as its leader, for a transport that streams a script's output.

    The command's output also goes to the script's own streams; after stdout's mark comes ``exit code, late, processes
    killed by the memory limit`` and a newline. The script must lead a session of its own. If its output is lost, or
    takes too long, run ``start_script`` for the same stem and poll.
    """
    put, lead = _leader(_STREAMED, stem, command, options, input_open=False)
    return f"{_prepare_files(stem, merge=options.merge, input_open=False)}{put and put + '; export __cmd'}\n{lead}"


def _prepare_files(stem: str, *, merge: bool, input_open: bool) -> str:
    fifos = "$d.bell $d.fout" + ("" if merge else " $d.ferr") + (" $d.in" if input_open else "")
    return (
        f"d={stem}; {{ mkfifo {fifos} || {{ mkdir -p {stem.rpartition('/')[0]}; mkfifo {fifos}; }}; }} 2>/dev/null\n"
        ": >>$d.out; : >>$d.err\n"
    )


def _leader(
    way: dict[str, str], stem: str, command: bytes, options: ScriptOptions, *, input_open: bool
) -> tuple[str, str]:
    """Return the assignment of the variable that holds a short command, and the script of the job's leader."""
    put, take, word = "", "", '-c "$c"'
    if len(command) <= INLINE_BYTES:
        put, take = f"__cmd={in_pieces(command)}", "c=$__cmd; unset __cmd; "
    elif len(command) <= ARGUMENT_BYTES:
        take = f"c=$(cat {stem}.cmd); "
    else:
        word = f"{stem}.cmd"
    pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in options.env.items())
    exports = f"env {pairs} " if pairs else ""  # an image may have no env
    tell = f"echo $$ >{stem}.pid; " if input_open else ""
    run = shlex.quote(f"{tell}{take}exec {exports}/bin/bash {word}")
    work = _TALK if input_open else _WORK
    lead = _LEAD.format(
        d=stem,
        work=work.format(
            d=stem,
            run=run,
            cwd=shlex.quote(options.cwd),
            err="8" if options.merge else "9",
            fifo="fout" if options.merge else "ferr",
            t=f"{max(options.timeout_s, 0.01):.3f}",  # zero would mean no timeout at all
            kill=KILL_AFTER_S,
            most_s=_NEVER_S,
        ),
        copy=way["copy"].format(blocks=(options.most_bytes >> 9) + 16),
        hundredths=int((_NEVER_S if input_open else options.timeout_s) * 100),
        forget=f"rm -f {' '.join(f'{each}.[!l]*' for each in options.forget)}" if options.forget else "",
        copy_err="" if options.merge else _COPY_ERR,
        end=way["end"].format(mark=mark(stem).decode()),
        mark_err="" if options.merge else f"printf %s '{mark(stem).decode()}' >&9\n",
    )
    return put, lead


def poll_script(
    stem: str,
    offsets: tuple[int | None, int | None],
    *,
    wait_s: float,
    chunk_bytes: int,
    quiet_s: float | None = None,
    flood_bytes: int | None = None,
    note: str | None = None,
    until_output: bool = False,
) -> str:
    """Return the script that waits up to ``wait_s`` for the end, then prints a header and each stream's new output.

    For each stream it prints the output from its offset on (nothing if that is None), at most ``chunk_bytes`` in all;
    ``frames`` returns the text before, between and after the two. ``flood_bytes`` means that the job's input is open:
    waiting also ends after ``quiet_s`` without output, or with that much output, and the header counts the turns of
    ``QUIET_TURN_S`` without output. ``note``: a file whose lines are printed with the end. ``until_output``, for such a
    job: waiting also ends with any output of the first stream after its offset.
    """
    watched = flood_bytes is not None
    turn_s = max(0.01, min(wait_s, QUIET_TURN_S if watched else TURN_S))
    turns = max(1, round(wait_s / turn_s)) if wait_s > 0 else 0
    measure = new = soon = ""
    known = offsets[0] or 0
    if until_output:
        new, soon = _NEW.format(known=known, turn=f"{turn_s:.3f}"), _SOON
    if watched:
        calm = max(1, round(quiet_s / turn_s)) if quiet_s is not None else 0
        measure = _MEASURE.format(calm=calm, flood=flood_bytes)
    wait = (
        _WAIT.format(
            d=stem, turns=turns, turn=f"{turn_s:.3f}", known=known, lives=_LIVES, measure=measure, new=new, soon=soon
        )
        if turns
        else ""
    )
    tell = _NOTE.format(note=shlex.quote(note)) if note else ""
    look = _LOOK.format(d=stem, wait=wait, lives=_LIVES, note=tell)
    most = chunk_bytes // (2 - offsets.count(None) or 1)
    if offsets == (0, 0):
        return f"{look}head -c {most} $d.out $d.err\n{_END}"
    out, err = (_piece(f"$d.{name}", at, most) for name, at in zip(("out", "err"), offsets, strict=True))
    return f'{look}echo "==> $d.out <=="\n{out}echo; echo "==> $d.err <=="\n{err}{_END}'


def _piece(file: str, at: int | None, most: int) -> str:
    if at is None:
        return ""
    return f"tail -c +{at + 1} {file} | head -c {most}\n" if at else f"head -c {most} {file}\n"


def tail_script(stem: str, ends_bytes: int) -> str:
    """Return the script that prints the length of a job's output, a newline, and its last bytes."""
    return f"s=$(wc -c <{stem}.out); echo tail $((s))\ntail -c +$((s-{ends_bytes}+1)) {stem}.out | head -c {ends_bytes}"


def frames(stem: str) -> tuple[bytes, bytes, bytes]:
    """Return the text before, between and after the two streams, as ``head`` prints it for two files."""
    return f"==> {stem}.out <==\n".encode(), f"\n==> {stem}.err <==\n".encode(), f"\n==> {stem} <==\n".encode()


def mark(stem: str) -> bytes:
    """Return the mark that ends a stream of the job; it contains the stem, which cannot be guessed."""
    return f"<end {stem.rpartition('/')[2]}>".encode()


def in_pieces(command: bytes) -> str:
    """Return the command as one shell word, in pieces of three letters.

    The script that holds it may be on a command line, where ``pkill -f word`` must not find the word.
    """
    try:
        text = command.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # bash drops NUL, and no argument may hold it
        return f'"$(printf %s {base64.b64encode(command).decode()} | base64 -d)"'
    pieces = (text[at : at + 3].replace("'", "'\"'\"'") for at in range(0, len(text), 3))
    return "".join(f"'{piece}'" for piece in pieces)


# The leader holds both ends of the FIFOs, so nobody blocks in open() and nobody gets SIGPIPE. The command reopens them,
# and gets its text from the environment: `pkill -f` with a word of the command must match neither the leader nor
# timeout. timeout leads a process group of its own; after a timeout the rest of the session is killed too, except the
# copiers. The exit code 124, or 137 after SIGKILL, may be the command's own, so the machine's clock decides. A copier
# closes the leader's ends itself: with `copy 8<&- &` dash would keep a copy to restore when the function returns, and
# the copier would wait for its own end forever.
_LEAD = """d={d}; set -C
command echo $$ >$d.lock || exit 0
set +C
now() {{ read -r up rest </proc/uptime; now=$((${{up%.*}}*100+1${{up#*.}}-100)); }}
exec 7<>$d.bell 8<>$d.fout
copy() {{ exec 7<&- 8<&- 9<&-; {copy}; }}
copy $d.out <$d.fout & keep=" $$ $! " copies="$! "
{copy_err}now; began=$now
{work}late=no; now
case $rc in 124|137|143) [ $((now-began)) -lt {hundredths} ] || late=yes; esac
[ $late = no ] || for p in /proc/[0-9]*; do
read -r s <$p/stat || continue
set -- ${{s##*) }}
[ "$4" != $$ ] || case "$keep" in *" ${{p#/proc/}} "*) ;; *)
case " $copies" in *" $2 "*) ;; *) kill -9 ${{p#/proc/}};; esac;; esac
done
{end}
{mark_err}echo $rc $late >$d.rc
echo .... >&7
{forget}"""

_DETACHED = {
    "copy": "exec >$1; (ulimit -f {blocks}; exec cat) || exec cat >/dev/null",
    "end": "printf %s '{mark}' >&8",
}

# Neither the limit of the file nor a missing reader may end tee's other output.
_STREAMED = {
    "copy": """trap "" XFSZ PIPE; ulimit -f {blocks}; exec tee $1 2>/dev/null""",
    "end": """oom=0
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do [ -r $f ] || continue
while read -r k v; do [ "$k" = oom_kill ] && oom=$v; done <$f; done
printf '%s %s %s %s\\n' '{mark}' $rc $late $oom >&8""",
}

_WORK = """(cd {cwd} || {{ echo "no such working directory: "{cwd} >&{err}; exit 126; }}
exec timeout -k {kill} {t} sh -c {run} >$d.fout 2>$d.{fifo} </dev/null 7<&- 8<&- 9<&-)
rc=$?; """

# The leader holds the input open until a signal tells it to close it; the signal interrupts its `wait` once. Background
# processes ignore interrupts for good: `timeout`, here with a timeout that never comes, restores them.
_TALK = """exec 6<>$d.in; shut=
trap 'exec 6>&-; shut=1; trap "" USR1' USR1
(cd {cwd} || {{ echo "no such working directory: "{cwd} >&{err}; exit 126; }}
exec timeout {most_s} setsid sh -c {run} <$d.in >$d.fout 2>$d.{fifo} 6>&- 7<&- 8<&- 9<&-) & pid=$!
echo ${{copies%% *}} >$d.copy
wait $pid; rc=$?
[ -z "$shut" ] || [ $rc != 138 ] || {{ wait $pid; rc=$?; }}
"""

_COPY_ERR = """exec 9<>$d.ferr; copy $d.err <$d.ferr >&2 & keep="$keep$! " copies="$copies$! "
"""

_LIVES = """lives() { read -r s </proc/$1/stat || return; case "${s##*) }" in [ZX]*) return 1; esac; }"""

# In bash, whose `read -t` needs no process: one process a second, for as long as tests run, adds up.
_WAIT = """exec 6<>$d.bell; still=$(BASH_ENV= /bin/bash -c 'd={d} still=0 was={known} t={turn} soon=0
{lives}
for ((n=0; n<{turns}; n++)); do
read -r rc late <$d.rc && break
read -r pid <$d.lock && ! lives $pid && break
{new}read -r -t $t -n 1 rung <&6{soon}
{measure}done; echo $still')
"""

# The copier's write position tells the size of the output, until the output is no longer kept.
_MEASURE = """[ -n "$copy" ] || read -r copy <$d.copy || continue
read -r word size </proc/$copy/fdinfo/1 || continue
if [ "$size" = "$was" ]; then still=$((still+1)); else still=0; fi
[ $size -le {flood} ] && [ $size -ge $was ] || break
was=$size
[ {calm} = 0 ] || [ $still -lt {calm} ] || break
"""

_NEW = """[ -n "$copy" ] || read -r copy <$d.copy
read -r word size </proc/$copy/fdinfo/1 && [ $size -gt {known} ] && break
t={turn}; [ $soon = 0 ] || {{ t=0.01; soon=$((soon-1)); }}
"""

# The output behind a wake-up byte may not have been copied yet.
_SOON = " && soon=10"

_NOTE = """[ -z "$rc" ] || [ ! -f {note} ] || note() {{ n=0
while [ $n -lt 8 ] && IFS= read -r l; do printf "note %s\\n" "$l"; n=$((n+1)); done <{note}; }}
"""

# The order matters: check the leader before rc, so that a dead leader without rc is known to have written none.
_LOOK = """d={d} still=
{lives}
note() {{ :; }}
{{ {wait}claimed=0; alive=0; oom=0
[ -e $d.lock ] && claimed=1
read -r pid <$d.lock || pid=
[ -n "$pid" ] && lives $pid && alive=1
read -r rc late <$d.rc || rc= late=
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
while read -r k v; do [ "$k" = oom_kill ] && oom=$v; done <$f; done
{note}}} 2>/dev/null
echo job $claimed ${{pid:--}} $alive ${{rc:--}} ${{late:--}} $oom ${{still:--}}
note
"""

_END = """echo; echo "==> $d <=="; exit 0
"""
