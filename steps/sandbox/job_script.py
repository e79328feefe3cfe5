"""The shell side of a detached job: what starts it and what looks at it, both safe to run any number of times.

One folder per job: ``cmd`` (the command), ``lock/`` (who makes it runs the job, so it runs once), ``pid`` (of the
session's leader), ``out`` and ``err``, ``own`` (the command's exit code; absent when it was ended from outside), and
``rc``, written last. The streams are FIFOs that ``cat`` copies to files: a command that opens /dev/stderr for writing
would truncate a file, and a child left behind goes on writing without holding the job. Where the command's output ends
is told by a mark that the leader writes behind it.
"""

from __future__ import annotations

import base64
import shlex

KILL_AFTER_S = 2
"""Between the polite signal at a timeout and the one that cannot be refused."""
INLINE_BYTES = 48 << 10
"""A longer command is sent as a file: Linux takes 128 KiB in one argument, base64 and quoting included."""
ARGUMENT_BYTES = 96 << 10
"""A longer command is run as a file, not by ``bash -c``."""


def start_script(
    folder: str, command: bytes, *, timeout_s: float, cwd: str, env: dict[str, str], merge: bool, forget: list[str]
) -> str:
    """The script that launches the job. The job itself takes the lock: a start that died half-way is repeated.

    A command longer than INLINE_BYTES must be in ``<folder>/cmd`` already. ``forget``: folders of jobs whose results
    are known.
    """
    put = ""
    if len(command) <= INLINE_BYTES:
        text = base64.b64encode(command).decode()
        put = f"[ -e $d/cmd ] || {{ printf %s '{text}' | base64 -d > $d/cmd.$$ && mv $d/cmd.$$ $d/cmd; }}\n"
    run = '/bin/bash -c "$__cmd"' if len(command) <= ARGUMENT_BYTES else f"/bin/bash {folder}/cmd"
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in env.items())
    inner = _INNER.format(d=folder, run=run, exports=exports, cwd=shlex.quote(cwd), err="out" if merge else "err")
    supervise = _SUPERVISE.format(
        d=folder,
        inner=shlex.quote(inner),
        t=f"{max(timeout_s, 0.01):.3f}",  # zero would mean no timeout at all
        kill=KILL_AFTER_S,
        streams="out" if merge else "out err",
        mark=mark(folder).decode(),
    )
    old = f"rm -rf {' '.join(forget)}\n" if forget else ""
    return f"{old}d={folder}; mkdir -p $d\n{put}setsid sh -c {shlex.quote(supervise)} >/dev/null 2>&1 </dev/null &\n"


def poll_script(folder: str, offsets: tuple[int, int], *, wait_s: float, chunk_bytes: int) -> str:
    """The script that waits up to ``wait_s`` for the end, then prints a header line and what is new of each stream."""
    quick = min(_QUICK_STEPS, int(wait_s / 0.02))
    steps = quick + int(max(0.0, wait_s - quick * 0.02) / 0.1)
    return _POLL.format(d=folder, steps=steps, quick=quick, chunk=chunk_bytes, out=offsets[0], err=offsets[1])


def mark(folder: str) -> bytes:
    """What ends a stream of the job; its folder's name is not to be guessed."""
    return f"<end {folder.rpartition('/')[2]}>".encode()


# The command replaces a subshell: dash would report its signal into the redirected stderr of a command of its own. The
# signal of timeout reaches this shell too: it lets the command end in its own way, and leaves no exit code.
_INNER = """trap late=1 TERM
(cd {cwd} || {{ echo "no such working directory: "{cwd} >{d}/f{err}; exit 126; }}
__cmd=$(cat {d}/cmd); {exports}exec {run} >{d}/fout 2>{d}/f{err} </dev/null)
rc=$?; [ -n "$late" ] || echo $rc >{d}/own"""

# The leader holds both ends of the FIFOs, so nobody waits in open() and nobody gets SIGPIPE. timeout leads a process
# group of its own; after a timeout what is left of the whole session is ended too, the copying apart.
_SUPERVISE = """d={d}
mkdir $d/lock || exit 0
echo $$ >$d/pid.tmp; mv $d/pid.tmp $d/pid
keep=" $$ "
for s in {streams}; do mkfifo $d/f$s; done
exec 8<>$d/fout
cat <$d/fout >$d/out 8<&- & keep="$keep$! "
[ ! -p $d/ferr ] || {{ exec 9<>$d/ferr; cat <$d/ferr >$d/err 8<&- 9<&- & keep="$keep$! "; }}
timeout -k {kill} {t} sh -c {inner} 8<&- 9<&-
rc=$?; own=no
if [ -s $d/own ]; then read -r rc <$d/own; own=yes
elif [ $rc = 124 ] || [ $rc = 137 ]; then for p in /proc/[0-9]*; do
read -r s <$p/stat || continue
set -- ${{s##*) }}
[ "$4" != $$ ] || case "$keep" in *" ${{p#/proc/}} "*) ;; *) kill -9 ${{p#/proc/}};; esac
done; fi
for s in {streams}; do printf %s '{mark}' >$d/f$s; done
echo $rc $own >$d/rc.tmp; mv $d/rc.tmp $d/rc"""

_QUICK_STEPS = 25

# The order matters: life before rc, so that a dead leader without rc is known to have left none.
_POLL = """d={d}; n=0
while [ ! -e $d/rc ] && [ $n -lt {steps} ]; do
if [ $n -lt {quick} ]; then sleep 0.02; else sleep 0.1; fi
[ -s $d/pid ] && read -r pid <$d/pid && ! kill -0 $pid && break
n=$((n+1)); done 2>/dev/null
claimed=0; pid=-; alive=0; rc=-; own=-; oom=0
[ -d $d/lock ] && claimed=1
[ -s $d/pid ] && read -r pid <$d/pid && kill -0 $pid 2>/dev/null && alive=1
[ -s $d/rc ] && read -r rc own <$d/rc
size() {{ if [ -e $1 ]; then echo $(($(wc -c <$1))); else echo 0; fi; }}
so=$(size $d/out); se=$(size $d/err)
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
[ -r $f ] && while read -r k v; do [ "$k" = oom_kill ] && oom=$v; done <$f; done
echo job $claimed $pid $alive $rc $own $so $se $oom
part() {{ [ $2 -le $3 ] || tail -c +$(($3+1)) $1 | head -c $(($2-$3 < {chunk} ? $2-$3 : {chunk})); }}
part $d/out $so {out}; part $d/err $se {err}; exit 0
"""
