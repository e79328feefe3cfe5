from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from swe_argo.steps.errors import extra_hint
from swe_argo.steps.reports.training.stored_training import read_training
from swe_argo.steps.reports.training.weights_and_biases import pending_rows
from swe_argo.steps.store import Store, open_store
from tests.paths import ROOT
from tests.steps.reports.training.made_up import MadeUpTraining
from tests.wandb_server import SentRun, WandbServer, wandb_server

needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")

QUIET = {"WANDB_ERROR_REPORTING": "false"}
"""Its client tells its makers nothing."""
LOG = """
import sys
from swe_argo.steps.reports.training.stored_training import read_training
from swe_argo.steps.reports.training.weights_and_biases import log_steps
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
store = open_store(sys.argv[1])
print(log_steps(store, read_training(store, "grpo"), settings()))
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"), create=True)


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with wandb_server() as server:
        yield server
        assert server.unknown == []


def log(store: Store, folder: Path, **variables: str) -> str:
    """What a process says that sends what is not sent yet: each step is a process of its own on a cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "-c", LOG, store.url],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT), "HOME": str(folder)} | QUIET | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def online(server: WandbServer) -> dict[str, str]:
    return {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": server.address}


def sent(server: WandbServer) -> SentRun:
    (run,) = server.runs.values()
    return run


def test_a_measurement_joins_the_next_row_or_is_one_of_its_own(store: Store) -> None:
    MadeUpTraining(steps=4, every=2).write(store)
    training = read_training(store, "grpo")
    rows = pending_rows(training, 0, -1)
    assert [(row.get("step"), row.get("held_out/step")) for row in rows] == [(1, 0), (2, 2), (3, 4), (4, None)]
    rows = pending_rows(training, 4, 0)
    assert [(row.get("step"), row.get("held_out/step")) for row in rows] == [(None, 2), (None, 4)]
    assert pending_rows(training, 4, 4) == []
    assert "run" not in rows[0]


def test_nothing_is_sent_where_nobody_asked(store: Store, tmp_path: Path) -> None:
    MadeUpTraining(steps=1).write(store)
    assert log(store, tmp_path) == ""
    assert log(store, tmp_path, WANDB_API_KEY="a" * 40, WANDB_MODE="disabled") == ""


@pytest.mark.skipif(find_spec("wandb") is not None, reason="the extra wandb is installed")
def test_without_the_extra_one_line_says_so(store: Store, tmp_path: Path) -> None:
    MadeUpTraining(steps=1).write(store)
    said = log(store, tmp_path, WANDB_API_KEY="a" * 40)
    assert said.splitlines() == [
        f"nothing is sent to Weights & Biases: the extra wandb is not installed ({extra_hint('wandb')})"
    ]


@needs_wandb
def test_processes_that_follow_each_other_send_each_step_once(
    store: Store, tmp_path: Path, server: WandbServer
) -> None:
    for steps in (2, 2, 5):
        MadeUpTraining(steps=steps).write(store)
        assert log(store, tmp_path, **online(server)) == ""
        assert [row["step"] for row in sent(server).history] == list(range(1, steps + 1))
    assert list(server.runs) == [("swe-argo", "grpo")]
    run = sent(server)
    assert [row["_step"] for row in run.history] == [1, 2, 3, 4, 5]
    figures = read_training(store, "grpo").steps
    assert [row["reward_mean"] for row in run.history] == [one.reward_mean for one in figures]
    assert run.config["lora_rank"]["value"] == 32
    assert not (tmp_path / "wandb").exists()


@needs_wandb
def test_a_measurement_that_comes_late_is_sent_once_and_the_training_goes_on(
    store: Store, tmp_path: Path, server: WandbServer
) -> None:
    for made in (MadeUpTraining(steps=2), MadeUpTraining(steps=2, every=2), MadeUpTraining(steps=3, every=2)):
        made.write(store)
        for _ in range(2):
            assert log(store, tmp_path, **online(server)) == ""
    history = sent(server).history
    assert [row["step"] for row in history if "step" in row] == [1, 2, 3]
    assert [row["held_out/step"] for row in history if "held_out/step" in row] == [0, 2]
    measured = read_training(store, "grpo").held_out[2].headline
    assert next(row for row in history if row.get("held_out/step") == 2)["held_out/resolved_share"] == measured.rate
    assert len(history) == 5


@needs_wandb
def test_another_training_of_the_name_is_not_mixed_up_with_this_one(
    store: Store, tmp_path: Path, server: WandbServer
) -> None:
    MadeUpTraining(steps=2).write(store)
    log(store, tmp_path, **online(server))
    other = open_store(str(tmp_path / "other"), create=True)
    MadeUpTraining(steps=4, created_at="2026-11-22T00:00:00Z").write(other)
    assert "has another training of the name 'grpo'" in log(other, tmp_path, **online(server))
    assert len(sent(server).history) == 2
    assert log(other, tmp_path, **online(server), WANDB_PROJECT="second") == ""
    assert len(server.runs["second", "grpo"].history) == 4


@needs_wandb
def test_a_service_that_refuses_costs_one_line(store: Store, tmp_path: Path, server: WandbServer) -> None:
    MadeUpTraining(steps=1).write(store)
    server.status = 403
    (line,) = log(store, tmp_path, **online(server)).splitlines()
    assert line.startswith("nothing is sent to Weights & Biases: ")
    server.status = 200
    assert log(store, tmp_path, **online(server)) == ""
    assert len(sent(server).history) == 1


@needs_wandb
def test_offline_each_step_is_kept_once(store: Store, tmp_path: Path, server: WandbServer) -> None:
    for steps in (2, 2, 3):
        MadeUpTraining(steps=steps).write(store)
        assert log(store, tmp_path, WANDB_MODE="offline") == ""
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(folders) == 3
    wandb = Path(sys.executable).with_name("wandb")
    env = os.environ | QUIET | online(server)
    for folder in folders:
        subprocess.run([wandb, "sync", "--project", "swe-argo", folder], cwd=tmp_path, env=env, check=True)
    assert [row["step"] for row in sent(server).history] == [1, 2, 3]
