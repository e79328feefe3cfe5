from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steps.contracts.run_spec import RunSpec
from steps.host.folders import private_folder
from steps.plan import plan
from steps.sandbox.local import bubblewrap
from tests.paths import ROOT

if TYPE_CHECKING:
    from tests.verl.loops import Loops

AGENT = Path(__file__).parents[1] / "workflows" / "api" / "scripted_agent.py"
INSTANCES = ["mini__slugkit-1", "mini__slugkit-2"]


def plan_rows(folder: Path, backend: str = "local", *, timeout_s: float = 600, **fields: object) -> str:
    """The store of an export: a run's first files, of two issues of mini."""
    spec = {
        "run_id": "rows",
        "store": str(folder),
        "select": {"instance_ids": INSTANCES},
        "agent": {"name": f"{AGENT}:Scripted", "timeout_s": timeout_s, "command_timeout_s": 20},
        "sandbox": {"backend": backend},
        **fields,
    }
    plan(RunSpec.model_validate(spec))
    return str(folder)


def plan_failing_rows(folder: Path, *orders: str, retries: int) -> str:
    """The same on a backend that fails to make these sandboxes (``role attempt``), once each."""
    shutil.copy(Path(__file__).with_name("failing_backend.py"), folder / "failing_backend.py")
    store = plan_rows(folder / "store", f"{folder}/failing_backend.py:connect", retries=retries)
    (folder / "orders").write_text("\n".join(orders))
    return store


@contextmanager
def doomed_processes(folder: Path, store: str) -> Iterator[Callable[[], None]]:
    """Each call begins a process that rolls out, and kills it in the midst of whatever its rollouts are at."""
    words = [sys.executable, "-m", "tests.verl.worker", str(folder), store]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as worker:
        assert worker.stdin
        assert worker.stdout
        orders, told = worker.stdin, worker.stdout

        def kill_one() -> None:
            orders.write(b"\n")
            while (words := told.readline().split())[0] != b"process":
                continue
            while told.readline().split()[0] != b"turn":
                continue
            time.sleep(2 * random.random())
            os.kill(int(words[1]), signal.SIGKILL)
            while Path("/proc", words[1].decode()).exists():
                time.sleep(0.01)

        yield kill_one
        orders.close()
        told.read()


@pytest.fixture(scope="session")
def isolation() -> None:
    if (why := bubblewrap.probe()) is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def rows(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of rows for backend local."""
    return plan_rows(tmp_path_factory.mktemp("rows") / "store")


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Loops:
    from tests.verl.loops import Loops

    return Loops(tmp_path_factory.mktemp("loops"))


@pytest.fixture
def sandboxes(isolation: None) -> Iterator[Callable[[], list[str]]]:
    """Which sandboxes of backend local this process has; none when the test is over."""
    example = private_folder()
    example.rmdir()
    pattern = example.name.rpartition("-")[0] + "-*"

    def now() -> list[str]:  # other private folders hold what grading reads and writes
        return sorted(folder.name for folder in example.parent.glob(pattern) if (folder / "testbed").exists())

    yield now
    assert not now()
