"""A gate before the model's endpoint holds for real processes, those that are killed included."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.rate_limits import RunnersGate
from swe_argo.workflows.local.model_gate import ADDRESS, ModelGate, gate

# Says when it came in and when it left, or is killed inside: its place must come free all the same.
CLIENT = """
import os, signal, socket, sys, time
path, log, killed, stay = sys.argv[1], sys.argv[2], sys.argv[3] == "killed", float(sys.argv[4])
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.connect(path)
assert line.recv(1)
came = time.monotonic()
time.sleep(stay)
left = time.monotonic()
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(file, f"{came} {left}\\n".encode())
if killed:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the address of a socket has room for a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="gate-") as name:
        yield Path(name)


@contextlib.contextmanager
def opened(folder: Path, concurrency: int | None = None, per_minute: float | None = None) -> Iterator[Path]:
    door = ModelGate(folder / "gate", concurrency, per_minute)
    try:
        yield folder / "gate"
    finally:
        door.close()


def client(path: Path, log: Path, *, killed: bool = False, stay_s: float = 0.05) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-S", "-c", CLIENT, str(path), str(log), "killed" if killed else "", str(stay_s)]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def stays(log: Path) -> list[tuple[float, float]]:
    pairs = [line.split() for line in log.read_text().splitlines()]
    return sorted((float(came), float(left)) for came, left in pairs)


def most_at_once(found: list[tuple[float, float]]) -> int:
    return max(sum(came <= moment < left for came, left in found) for moment, _ in found)


def waiting(path: Path) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(str(path))
    line.settimeout(60)
    return line


def stays_out(line: socket.socket) -> bool:
    """Whether it hears nothing for a fifth of a second."""
    line.settimeout(0.2)
    try:
        line.recv(1)
    except TimeoutError:
        return True
    finally:
        line.settimeout(60)
    return False


def test_of_64_processes_at_most_so_many_are_inside_and_all_come_in(folder: Path) -> None:
    log = folder / "log"
    with opened(folder, concurrency=5) as path:
        clients = [client(path, log, killed=number % 4 == 0) for number in range(64)]
        codes = [each.wait(timeout=60) for each in clients]
    assert codes.count(-signal.SIGKILL) == 16
    assert codes.count(0) == 48
    found = stays(log)
    assert len(found) == 64
    assert most_at_once(found) <= 5


def test_every_place_is_taken_and_the_next_comes_in_when_one_is_free(folder: Path) -> None:
    with opened(folder, concurrency=5) as path, contextlib.ExitStack() as lines:
        inside, last = [lines.enter_context(waiting(path)) for _ in range(5)], lines.enter_context(waiting(path))
        for each in inside:
            assert each.recv(1)
        assert stays_out(last)
        inside[3].close()
        assert last.recv(1)


def test_who_is_killed_while_it_waits_takes_no_place(folder: Path) -> None:
    log = folder / "log"
    with opened(folder, concurrency=1) as path:
        inside = waiting(path)
        assert inside.recv(1)
        doomed = [client(path, log) for _ in range(8)]
        time.sleep(1.0)
        for each in doomed:
            each.kill()
            each.wait()
        later = waiting(path)
        assert stays_out(later)
        inside.close()
        assert later.recv(1)
        later.close()
    assert not log.exists()


def test_turns_are_taken_in_the_order_of_coming(folder: Path) -> None:
    with opened(folder, concurrency=1) as path:
        lines = [waiting(path) for _ in range(5)]
        for each in lines:
            assert each.recv(1)
            each.close()


def test_requests_are_paced_without_bursts(folder: Path) -> None:
    with opened(folder, per_minute=1200) as path, contextlib.ExitStack() as lines:
        began = time.monotonic()
        queue = [lines.enter_context(waiting(path)) for _ in range(24)]
        for number, each in enumerate(queue):
            assert each.recv(1)
            # Never too early, however late a busy machine wakes who was let in.
            assert time.monotonic() - began >= number * 0.05


def test_a_quiet_time_is_not_saved_up(folder: Path) -> None:
    with opened(folder, per_minute=600) as path:
        time.sleep(0.5)
        began = time.monotonic()
        for _ in range(4):
            with contextlib.closing(waiting(path)) as line:
                assert line.recv(1)
        assert time.monotonic() - began >= 0.29


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_waiting_takes_no_processor_time(folder: Path) -> None:
    with opened(folder, concurrency=1, per_minute=1) as path:
        [thread] = [each for each in threading.enumerate() if each.name == "gate"]
        lines = [waiting(path) for _ in range(20)]
        assert lines[0].recv(1)
        assert any(rests(thread) for _ in range(20)), "it wakes again and again"
        for each in lines:
            each.close()


def rests(thread: threading.Thread) -> bool:
    """Whether it sleeps through half a second."""
    before = times_woken(thread)
    time.sleep(0.5)
    return times_woken(thread) == before


def times_woken(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]


def test_closing_sends_everybody_away_and_leaves_nothing(folder: Path) -> None:
    with opened(folder, concurrency=1) as path:
        inside, outside = waiting(path), waiting(path)
        assert inside.recv(1)
    assert outside.recv(1) == b""
    inside.close()
    outside.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "gate"]


def test_steps_find_it_by_a_variable_and_it_is_gone_with_the_run() -> None:
    spec = RunSpec.model_validate({"agent": {"name": "openhands"}, "llm": {"concurrency": 2}})
    with gate(spec) as env:
        path = Path(env[ADDRESS])
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o077 == 0
        door = RunnersGate(path)
        with door.turn(5), door.turn(5):
            pass
    assert not path.parent.exists()


@pytest.mark.parametrize(("agent", "llm"), [("openhands", {}), ("gold", {"concurrency": 2})])
def test_there_is_none_where_nothing_is_limited(agent: str, llm: dict[str, int]) -> None:
    with gate(RunSpec.model_validate({"agent": {"name": agent}, "llm": llm})) as env:
        assert env == {}


def test_a_temporary_folder_that_is_too_deep_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    spec = RunSpec.model_validate({"agent": {"name": "openhands"}, "llm": {"concurrency": 2}})
    with pytest.raises(ConfigError, match="TMPDIR"), gate(spec):
        pass
    assert not list(deep.iterdir())
