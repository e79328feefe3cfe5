"""``python -m tests.verl.worker FOLDER STORE``: fork a process of endless rollouts per line of stdin, to be killed.

Stdout has ``process PID`` for each, and ``turn N`` for each call of its model.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.solutions import rows
from tests.verl.loops import Loops, call

INSTANCE = "mini__slugkit-2"


def answers(_prompt: str, turn: int) -> str:
    write(f"turn {turn}")
    if turn == 0:
        return call("bash", command="exec -a swe-argo-verl-killed sleep 0.3")
    return call("submit_solution", patch=rows()[INSTANCE]["patch"])


async def work(loops: Loops, store: str) -> None:
    async def go_on() -> None:
        while True:
            await loops.run(store, INSTANCE, answers)

    await asyncio.gather(*[go_on() for _ in range(4)])


def write(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    loops = Loops(Path(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            write(f"process {os.getpid()}")
            asyncio.run(work(loops, sys.argv[2]))
