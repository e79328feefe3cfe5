"""Turns of creation, by a clock that moves when somebody sleeps."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.e2b.creation_rate import LONGEST_PAUSE_S, CreationRate


class Clock:
    """It goes on when somebody sleeps, and by nothing else."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def limit(folder: Path, per_second: float, clock: Clock) -> CreationRate:
    return CreationRate(folder / "turns", per_second, clock=clock.read, sleep=clock.sleep)


def take(rate: CreationRate) -> None:
    with rate.turn():
        pass


@pytest.mark.parametrize(("per_second", "in_one_second", "seconds"), [(1.0, 1, 1.0), (5.0, 5, 1.0), (0.5, 1, 2.0)])
def test_creation_rate_limits_arrivals(tmp_path: Path, per_second: float, in_one_second: int, seconds: float) -> None:
    clock, arrivals, chance = Clock(), [], Random(1)

    def make(_: int) -> None:
        with limit(tmp_path, per_second, clock).turn():
            clock.sleep(chance.random())
            arrivals.append(clock.now)
            clock.sleep(chance.random() / 10)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, range(64)))
    arrivals.sort()
    assert len(arrivals) == 64
    assert all(later - first >= seconds for first, later in zip(arrivals, arrivals[in_one_second:], strict=False))


def test_creation_is_free_after_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    clock.now += 60
    take(limit(tmp_path, 1.0, clock))
    assert clock.slept == []


def test_killed_creator_frees_its_turn(tmp_path: Path) -> None:
    script = f"""
import pathlib, sys
from swe_argo.steps.sandbox.e2b.creation_rate import CreationRate
rate = CreationRate(pathlib.Path({str(tmp_path / "turns")!r}), 1.0)
with rate.turn():
    print("one", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"one\n"
        waiting.kill()
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    assert sum(clock.slept) == pytest.approx(1.0)  # a clock that has gone back says so much of a turn


def test_refusal_pauses_all_creators(tmp_path: Path) -> None:
    clock = Clock()
    ours, theirs = limit(tmp_path, 5.0, clock), limit(tmp_path, 5.0, clock)
    ours.refusals.refuse(30.0, "full")
    ours.refusals.refuse(2.0, "full")
    take(theirs)
    assert clock.now == 1030
    refusal = theirs.refusals.latest()
    assert refusal is not None
    assert (refusal.why, refusal.since) == ("full", 1000)
    theirs.refusals.accept()
    assert ours.refusals.latest() is None


def test_pause_has_a_maximum(tmp_path: Path) -> None:
    clock = Clock()
    limit(tmp_path, 5.0, clock).refusals.refuse(10.0**9, "go away")
    take(limit(tmp_path, 5.0, clock))
    assert clock.now == 1000 + LONGEST_PAUSE_S


@pytest.mark.parametrize("text", ["not a number", "nan", "1e12"])
def test_invalid_turn_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.0").write_text(text)
    (tmp_path / "turns.refused").write_text(text)
    clock = Clock()
    take(limit(tmp_path, 1.0, clock))
    assert sum(clock.slept) <= 1.0


def test_unwritable_turn_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="SWE_ARGO_HOME"):
        take(CreationRate(tmp_path / "file" / "turns", 1.0))
