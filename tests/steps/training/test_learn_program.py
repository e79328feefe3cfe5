"""The learn step as a program: its outputs, its end by a signal, and its recovery from a kill at any request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swe_argo.steps import learn as program
from swe_argo.steps.contracts.chain import LEARN, OUTCOME, PAGE
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints, WeightsFile
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.serving.weights import read_pointer
from swe_argo.steps.settings import settings
from swe_argo.steps.store import Store
from tests.paths import ROOT
from tests.steps.training.conftest import Lab
from tests.steps.training.rounds import MIXED, NAME, make_run, make_training
from tests.tinker_server.server import KEY

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def start(lab: Lab, step: int, out: Path) -> subprocess.Popen[str]:
    url = lab.tinker.url
    keys = {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
    words = [f"--store={lab.store.url}", f"--training={NAME}", f"--step={step}", f"--out={out}"]
    command = [sys.executable, "-m", "swe_argo.steps.learn", *words]
    return subprocess.Popen(command, env=os.environ | keys, stderr=subprocess.PIPE, text=True)


def test_learn_program_learns_one_step(lab: Lab, tmp_path: Path) -> None:
    make_training(lab.store)
    make_run(lab.store, 1, MIXED)
    with start(lab, 1, tmp_path / "out") as process:
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert (tmp_path / "out" / OUTCOME).read_text() == "learnt from 2 rollouts"
    assert "toy" in (tmp_path / "out" / PAGE).read_text()
    (checkpoint,) = lab.checkpoints
    assert checkpoint.weights.version == "000001"
    assert lab.tinker.ended == ["success"]


def test_terminated_learner_ends_session(lab: Lab, tmp_path: Path) -> None:
    make_training(lab.store)
    make_run(lab.store, 1, MIXED)
    lab.tinker.trainer.stuck.add("optim_step")
    with start(lab, 1, tmp_path / "out") as process:
        lab.tinker.before = lambda route: process.terminate() if route == "optim_step" else None
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert lab.tinker.ended == ["interrupted"]
    assert lab.store.get_many([key(Checkpoints, NAME)]) == {}


@pytest.mark.parametrize(
    ("name", "words"), [(NAME, "TINKER_API_KEY: is not set"), ("toys", "training: there is no training 'toys' in ")]
)
def test_missing_input_is_one_line(store: Store, monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    make_training(store)
    monkeypatch.setenv("TINKER_API_KEY", "")
    settings.cache_clear()
    chosen = {"store": store.url, "training": name, "step": 1}
    with pytest.raises(ConfigError) as refusal:
        program.main({option.name: option.default for option in LEARN.options} | chosen)
    settings.cache_clear()
    assert str(refusal.value).startswith(words)
    assert "\n" not in str(refusal.value)


FINISH = "sessions/{session}/finish"
Request = tuple[str, int]
"""A route and the count of requests there; concurrent requests come in any order."""


@dataclass
class Killer:
    """Kills a process at its first request that no process was killed at; the request is not executed."""

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


def kill_at_every_request(lab: Lab, step: int, out: Path) -> set[str]:
    """Start the command and kill it at each request in turn, until it ends; return the routes of the kills."""
    known_requests: set[Request] = set()
    while True:
        with start(lab, step, out) as process:
            lab.tinker.before = Killer(process, known_requests)
            _, errors = process.communicate(timeout=300)
        lab.tinker.before = lambda _: None
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, errors
            return {route for route, _ in known_requests}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_training_survives_every_kill(lab: Lab, tmp_path: Path) -> None:
    training = make_training(lab.store)
    for step in (1, 2):
        make_run(lab.store, step, MIXED)
    lab.learn(training, 1, 2)
    expected = learnt(lab)
    lab.store.delete_many(lab.store.keys(f"trainings/{NAME}/"))
    make_training(lab.store)
    for step in (1, 2):
        killed = kill_at_every_request(lab, step, tmp_path / "out")
        assert killed > {"forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", FINISH}
    assert learnt(lab) == expected
    pointer = read_pointer(lab.store.get(key(WeightsFile, NAME)))
    assert lab.tinker.trainer.states[pointer.sampler_path] == expected[-1][-1]


def learnt(lab: Lab) -> list[tuple[int, str, str]]:
    lines = zip(lab.checkpoints, lab.states, strict=True)
    return [(checkpoint.step, checkpoint.samples_sha256, state) for checkpoint, state in lines]
