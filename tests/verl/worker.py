"""``python -m tests.verl.worker FOLDER STORE``: rollouts without end, four at a time, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.solutions import rows
from tests.verl.loops import Loops, call

INSTANCE = "mini__slugkit-2"


def answers(_prompt: str, turn: int) -> str:
    sys.stdout.write(f"turn {turn}\n")
    sys.stdout.flush()
    if turn == 0:
        return call("bash", command="exec -a swe-argo-verl-killed sleep 0.3")
    return call("submit_solution", patch=rows()[INSTANCE]["patch"])


async def work(folder: Path, store: str) -> None:
    loops = Loops(folder)

    async def go_on() -> None:
        while True:
            await loops.run(store, INSTANCE, answers)

    await asyncio.gather(*[go_on() for _ in range(4)])


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
