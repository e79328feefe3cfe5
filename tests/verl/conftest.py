from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.paths import ROOT
from tests.rollouts.fixtures import isolation, rows, sandboxes  # noqa: F401 - pytest finds them here

if TYPE_CHECKING:
    from tests.verl.loops import Loops


@contextmanager
def doomed_processes(folder: Path, store: str) -> Iterator[Callable[[], None]]:
    """Yield a function that starts a process of rollouts, and kills it at a random moment."""
    words = [sys.executable, "-m", "tests.verl.worker", str(folder), store]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as worker:
        assert worker.stdin
        assert worker.stdout
        orders, output = worker.stdin, worker.stdout

        def kill_one() -> None:
            orders.write(b"\n")
            while (words := output.readline().split())[0] != b"process":
                continue
            while output.readline().split()[0] != b"turn":
                continue
            time.sleep(2 * random.random())
            os.kill(int(words[1]), signal.SIGKILL)
            while Path("/proc", words[1].decode()).exists():
                time.sleep(0.01)

        yield kill_one
        orders.close()
        output.read()


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Loops:
    from tests.verl.loops import Loops

    return Loops(tmp_path_factory.mktemp("loops"))
