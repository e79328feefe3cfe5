from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swe_argo.steps.contracts.chain import OUTCOME, PAGE
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints, WeightsFile
from swe_argo.steps.serving.weights import read_pointer
from swe_argo.steps.store import Store
from tests.paths import ROOT
from tests.steps.training.conftest import NewLearner
from tests.steps.training.rounds import NAME, Try, make_run, make_training
from tests.tinker_server.server import KEY, TinkerServer

# The SDK asks for its configuration over a connection that it never closes (0.38, InternalClientHolder).
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
MIXED = {"a": [Try(1.0), Try(0.0)]}


def start(tinker: TinkerServer, store: Store, step: int, out: Path, key_: str = KEY) -> subprocess.Popen[str]:
    keys = {"TINKER_API_KEY": key_, "TINKER_BASE_URL": tinker.url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
    command = [
        *(sys.executable, "-m", "swe_argo.steps.learn", f"--store={store.url}", f"--training={NAME}"),
        *(f"--step={step}", f"--out={out}"),
    ]
    return subprocess.Popen(command, env=os.environ | keys, stderr=subprocess.PIPE, text=True)


def learn(tinker: TinkerServer, store: Store, step: int, out: Path, key_: str = KEY) -> tuple[int, str]:
    """Exit code and what was printed."""
    with start(tinker, store, step, out, key_) as process:
        _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def test_learn_program_learns_one_step(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    make_training(store)
    make_run(store, 1, MIXED)
    code, errors = learn(tinker, store, 1, tmp_path / "out")
    assert code == 0, errors
    assert (tmp_path / "out" / OUTCOME).read_text() == "learnt from 2 rollouts"
    assert "toy" in (tmp_path / "out" / PAGE).read_text()
    (checkpoint,) = Checkpoints(store.get(key(Checkpoints, NAME))).list
    assert checkpoint.weights.version == "000001"
    assert tinker.ended == ["success"]


def test_terminated_learner_ends_session(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    make_training(store)
    make_run(store, 1, MIXED)
    tinker.trainer.stuck.add("optim_step")
    with start(tinker, store, 1, tmp_path / "out") as process:
        tinker.before = lambda route: process.terminate() if route == "optim_step" else None
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert tinker.ended == ["interrupted"]
    assert store.get_many([key(Checkpoints, NAME)]) == {}


def test_missing_key_is_one_line(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    make_training(store)
    assert learn(tinker, store, 1, tmp_path, "") == (64, "TINKER_API_KEY: is not set\n")


def test_missing_training_is_one_line(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    code, errors = learn(tinker, store, 1, tmp_path)
    assert code == 64
    assert errors.startswith(f"training: there is no training 'toy' in {store.url}")
    assert errors.count("\n") == 1


FINISH = "sessions/{session}/finish"
Request = tuple[str, int]
"""A route, and how often the process has asked there by then: two that ask at once come in either order."""


@dataclass
class Killer:
    """Kills a process when it makes a request that none was killed at, before that is done."""

    process: subprocess.Popen[str]
    known_requests: set[Request]
    request_counts: Counter[str] = field(default_factory=Counter)
    has_killed: bool = False

    def __call__(self, route: str) -> int | None:
        self.request_counts[route] += 1
        request = (route, self.request_counts[route])
        if not self.has_killed and request in self.known_requests:
            return None
        if not self.has_killed:
            self.has_killed = True
            self.known_requests.add(request)
            self.process.send_signal(signal.SIGKILL)
        return 503


def kill_at_every_request(tinker: TinkerServer, store: Store, step: int, out: Path) -> set[str]:
    """Start the command again and again, and kill it at a request that it was not killed at before; until it ends.

    Returns the routes at which it was killed.
    """
    known_requests: set[Request] = set()
    while True:
        with start(tinker, store, step, out) as process:
            tinker.before = Killer(process, known_requests)
            _, errors = process.communicate(timeout=300)
        tinker.before = lambda _: None
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, errors
            return {route for route, _ in known_requests}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_training_survives_every_kill(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, tmp_path: Path
) -> None:
    learner = new_learner(make_training(store))
    for step in (1, 2):
        make_run(store, step, MIXED)
        learner.learn(step)
    learner.close()
    expected = learnt(tinker, store)
    store.delete_many(store.keys(f"trainings/{NAME}/"))
    make_training(store)
    for step in (1, 2):
        killed = kill_at_every_request(tinker, store, step, tmp_path / "out")
        assert killed > {"forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", FINISH}
    assert learnt(tinker, store) == expected
    pointer = read_pointer(store.get(key(WeightsFile, NAME)))
    assert tinker.trainer.states[pointer.sampler_path] == expected[-1][-1]


def learnt(tinker: TinkerServer, store: Store) -> list[tuple[int, str, str]]:
    """Step, samples and saved state of every line."""
    lines = Checkpoints(store.get(key(Checkpoints, NAME))).list
    return [
        (checkpoint.step, checkpoint.samples_sha256, tinker.trainer.states[checkpoint.weights.state_path])
        for checkpoint in lines
    ]
