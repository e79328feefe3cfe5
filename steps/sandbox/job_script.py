"""The shell side of a detached job: what starts it and what looks at it, both safe to run any number of times.

A job is a few files of one stem: ``.lock`` (its leader's pid; who makes it runs the job, so it runs once), ``.out`` and
``.err``, ``.rc``, written last, and ``.cmd``, the command, if it is long. A line counts only with its newline: what is
half written is not there yet. The streams are FIFOs that ``cat`` copies to files: a command that opens /dev/stderr for
writing would truncate a file, and a child left behind goes on writing without holding the job. Where the command's
output ends is told by a mark that the leader writes behind it. ``.bell`` is a FIFO that the leader rings after its end,
once for each of a few who may wait; who opens it before looking for ``.rc`` misses neither. The command may ring it for
who waits for its output, which may be a moment behind. A job that can be talked to
has a FIFO ``.in`` too, the pid of its session in ``.pid``, and that of who copies its output in ``.copy``.

A process started here costs every command a millisecond, so there are as few as can be.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass

KILL_AFTER_S = 2
"""Between the polite signal at a timeout and the one that cannot be refused."""
INLINE_BYTES = 16 << 10
"""A longer command is sent as a file: Linux takes 128 KiB in one argument, quoting included."""
ARGUMENT_BYTES = 96 << 10
"""A longer command is run as a file, not by ``bash -c``."""
QUIET_TURN_S = 0.5
"""How often who waits for silence measures."""
TURN_S = 1.0
"""How often who waits looks whether the leader lives: one that was killed rings no bell."""
_NEVER_S = 10**9


@dataclass(frozen=True)
class ScriptOptions:
    """How a command is run, however its job is started."""

    timeout_s: float
    cwd: str
    env: dict[str, str]
    merge: bool
    """Whether stderr goes where stdout does."""
    most_bytes: int
    """Of a stream that is longer the rest is not kept: it would fill the machine's disk."""
    forget: list[str]
    """Stems of jobs whose results are known: removed when this one has ended, but for their locks, which a start of
    theirs still on its way must find."""


def start_script(stem: str, command: bytes, options: ScriptOptions, *, input_open: bool = False) -> str:
    """The script that launches the job. The job itself takes the lock: a start that died half-way is repeated.

    A command longer than INLINE_BYTES must be in ``<stem>.cmd`` already. ``input_open``: the command leads a session of
    its own, has a FIFO as its input, and no timeout.
    """
    put, lead = _leader(_DETACHED, stem, command, options, input_open=input_open)
    files = _prepare_files(stem, merge=options.merge, input_open=input_open)
    return f"{files}{put and put + ' '}setsid sh -c {shlex.quote(lead)} >/dev/null 2>&1 </dev/null &\n"


def stream_script(stem: str, command: bytes, options: ScriptOptions) -> str:
    """The same job, for who can read a script's output while it runs: this script is the leader itself.

    What the command prints comes on the script's own streams too, and behind stdout's mark ``exit code, late, processes
    that the memory limit killed`` and a newline. It must lead a session of its own. Who lost its output, or will not
    wait for more of it, gives ``start_script`` for the same stem, and polls.
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
    """What sets the variable that holds a short command, and the script of who leads the job."""
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
    """The script that waits up to ``wait_s`` for the end, then prints a header and what is new of each stream.

    Of a stream it prints what is there from its offset on, nothing where that is None, and of all that is wanted at
    most ``chunk_bytes``; ``frames`` says what stands before, between and behind the two. Where ``flood_bytes`` is
    given the job's input is open, and waiting ends too with ``quiet_s`` without output or with that much of it; told is
    then for how many turns of ``QUIET_TURN_S`` there was none. ``note``: a file whose lines are told with the end.
    ``until_output``, of such a job: waiting ends with any output of the first stream behind its offset.
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
    """The script that prints how long a job's output is, and its last bytes behind a newline."""
    return f"s=$(wc -c <{stem}.out); echo tail $((s))\ntail -c +$((s-{ends_bytes}+1)) {stem}.out | head -c {ends_bytes}"


def frames(stem: str) -> tuple[bytes, bytes, bytes]:
    """What stands before the first stream, between the two and behind the second: as ``head`` does it for two files."""
    return f"==> {stem}.out <==\n".encode(), f"\n==> {stem}.err <==\n".encode(), f"\n==> {stem} <==\n".encode()


def mark(stem: str) -> bytes:
    """What ends a stream of the job; its stem is not to be guessed."""
    return f"<end {stem.rpartition('/')[2]}>".encode()


def in_pieces(command: bytes) -> str:
    """The command as one word of shell, in pieces of three letters.

    The script that holds it may be on a command line: ``pkill -f word`` must not find the word there.
    """
    try:
        text = command.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # what no argument may hold, bash drops
        return f'"$(printf %s {base64.b64encode(command).decode()} | base64 -d)"'
    pieces = (text[at : at + 3].replace("'", "'\"'\"'") for at in range(0, len(text), 3))
    return "".join(f"'{piece}'" for piece in pieces)


# The leader holds both ends of the FIFOs, so nobody waits in open() and nobody gets SIGPIPE. The command opens them
# anew, and has its text from the environment: one that kills whatever has some word on its command line must find
# neither its leader nor timeout. That one leads a process group of its own; after a timeout what is left of the whole
# session is ended too, the copying apart. Its 124, or 137 after the signal that cannot be refused, may be the command's
# own: the machine's clock tells. Who copies closes the leader's ends itself: with `copy 8<&- &` dash would keep one to
# give back when the function ends, and who copies would wait for its own end for ever.
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

# Nothing that befalls one of tee's two outputs ends the other: neither the limit of the file, nor that nobody listens.
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

# Who leads holds the input open until it is asked not to, by a signal, which ends its waiting once. What is started in
# the background ignores interrupts for good: `timeout`, whose time does not come, listens to them again.
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

# In bash, which waits by itself: processes each second, for as long as tests run, add up.
_WAIT = """exec 6<>$d.bell; still=$(BASH_ENV= /bin/bash -c 'd={d} still=0 was={known} t={turn} soon=0
{lives}
for ((n=0; n<{turns}; n++)); do
read -r rc late <$d.rc && break
read -r pid <$d.lock && ! lives $pid && break
{new}read -r -t $t -n 1 rung <&6{soon}
{measure}done; echo $still')
"""

# How much there is of the output is told by the place at which it is written, until it is no longer kept.
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

# What was rung for may not have been copied yet.
_SOON = " && soon=10"

_NOTE = """[ -z "$rc" ] || [ ! -f {note} ] || note() {{ n=0
while [ $n -lt 8 ] && IFS= read -r l; do printf "note %s\\n" "$l"; n=$((n+1)); done <{note}; }}
"""

# The order matters: life before rc, so that a dead leader without rc is known to have left none.
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
