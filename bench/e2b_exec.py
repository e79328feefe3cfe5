"""What a short command at E2B costs, beside the SDK's own ``Sandbox.commands.run`` in the same sandbox.

Both ask the test server, which runs their commands on this machine, by a line as long as one to another region: of a
job that no lost stream loses the processes cost what they do, and the line is what both wait for.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from swe_argo.steps.sandbox.local import bubblewrap

ROUNDS = 60
LINE_S = 0.05
COMMAND = "cat hello.txt"


def measure() -> dict[str, float]:
    """Milliseconds of a median command of each, and their ratio; the same ratio without a line, which no limit is for.

    Nothing where backend local isolates nothing: its commands would be other ones.
    """
    if why := bubblewrap.probe():
        sys.stderr.write(f"e2b_exec: not measured: {why}\n")
        return {}
    from tests.steps.sandbox.e2b.lab import laboratory

    with tempfile.TemporaryDirectory() as name, laboratory(Path(name), _checkout(Path(name))) as lab:
        box = lab.make(deadline_s=600)
        sdk = box.transport._control.client()

        def ours() -> None:
            assert box.exec(COMMAND, timeout_s=60).stdout == b"hello\n"

        def theirs() -> None:
            assert sdk.commands.run(COMMAND, cwd="/testbed", user="root").stdout == "hello\n"

        near = _compare(ours, theirs)
        lab.server.line_s = LINE_S
        mine, its = _compare(ours, theirs)
    return {
        "e2b_exec_p50_ms": mine * 1e3,
        "e2b_sdk_p50_ms": its * 1e3,
        "e2b_exec_to_sdk_p50": mine / its,
        "e2b_exec_to_sdk_p50_no_line": near[0] / near[1],
    }


def _compare(*acts: Callable[[], None]) -> list[float]:
    """The median seconds of each, done in turn, so that what else the machine does meets both alike."""
    for act in acts:
        act()  # what is made once
    times = [[_seconds(act) for act in acts] for _ in range(ROUNDS)]
    return [statistics.median(seconds) for seconds in zip(*times, strict=True)]


def _checkout(folder: Path) -> Path:
    bed = folder / "testbed"
    bed.mkdir()
    (bed / "hello.txt").write_text("hello\n")
    subprocess.run(["git", "init", "-q"], cwd=bed, check=True)
    return bed


def _seconds(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
