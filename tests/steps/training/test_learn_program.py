from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steps.contracts.chain import OUTCOME
from steps.contracts.record import key
from steps.contracts.training import Checkpoints
from steps.store import Store
from tests.paths import ROOT
from tests.steps.training.rounds import NAME, Try, make_run, make_training
from tests.tinker_server.server import KEY, TinkerServer

pytestmark = pytest.mark.slow
MIXED = {"a": [Try(1.0), Try(0.0)]}


def start(tinker: TinkerServer, store: Store, step: int, out: Path, key_: str = KEY) -> subprocess.Popen[str]:
    keys = {"TINKER_API_KEY": key_, "TINKER_BASE_URL": tinker.url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
    command = [
        *(sys.executable, "-m", "steps.learn", f"--store={store.url}", f"--training={NAME}"),
        *(f"--step={step}", f"--out={out}"),
    ]
    return subprocess.Popen(command, env=os.environ | keys, stderr=subprocess.PIPE, text=True)


def learn(tinker: TinkerServer, store: Store, step: int, out: Path, key_: str = KEY) -> tuple[int, str]:
    """Exit code and what was printed."""
    with start(tinker, store, step, out, key_) as process:
        _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def test_learn_is_a_program_of_one_step(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    make_training(store)
    make_run(store, 1, MIXED)
    code, errors = learn(tinker, store, 1, tmp_path / "out")
    assert code == 0, errors
    assert (tmp_path / "out" / OUTCOME).read_text() == "learnt from 2 rollouts"
    (done,) = Checkpoints(store.get(key(Checkpoints, NAME))).list
    assert done.weights.version == "000001"
    assert tinker.ended == ["success"]


def test_a_missing_key_is_one_line(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    make_training(store)
    assert learn(tinker, store, 1, tmp_path, "") == (64, "TINKER_API_KEY: is not set\n")


def test_a_training_that_is_not_there_is_one_line(store: Store, tinker: TinkerServer, tmp_path: Path) -> None:
    code, errors = learn(tinker, store, 1, tmp_path)
    assert (code, errors) == (64, f"training: there is no training 'toy' in {store.url}\n")
