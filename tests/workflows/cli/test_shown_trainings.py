from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import TrainFile, held_out_run_of
from swe_argo.steps.reports.training.write import training_page_key
from swe_argo.steps.store import Store, open_store
from swe_argo.workflows.cli import run_list
from tests.steps.reports.synthetic import Synthetic
from tests.steps.reports.training.made_up import MadeUpTraining
from tests.workflows.command import swe_argo


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "store"), create=True)
    MadeUpTraining(steps=12, every=10).write(store)
    return store


def listed(store: Store, *, whole: bool = False) -> str:
    text = io.StringIO()
    run_list.print_runs(store, Console(file=text, width=40), whole=whole)
    return text.getvalue()


def test_show_prints_last_training_steps(store: Store) -> None:
    result = swe_argo("show", "grpo", "--store", store.url)
    assert result.returncode == 0
    first, *lines = result.stdout.splitlines()
    assert first == "grpo: 12 of 100 steps learnt"
    assert [line.split()[0] for line in lines if line[:4].strip().isdigit()] == [str(step) for step in range(3, 13)]
    assert "held out, before the first step: " in result.stdout
    assert f"no page yet: swe-argo report grpo --store {store.url}" in result.stdout


def test_report_writes_training_page(store: Store) -> None:
    result = swe_argo("report", "grpo", "--store", store.url)
    assert (result.returncode, result.stderr) == (0, "")
    place = store.locate(training_page_key("grpo"))
    assert result.stdout.splitlines()[-1] == f"page: {place}"
    assert Path(place).is_file()


def test_report_updates_training_page(store: Store) -> None:
    result = swe_argo("report", held_out_run_of("grpo", 10), "--store", store.url)
    assert result.returncode in (0, 3)
    assert "Held out, after step 10" in store.get(training_page_key("grpo")).decode()


def test_show_refuses_training_instance(store: Store) -> None:
    result = swe_argo("show", "grpo", "django__django-1", "--store", store.url)
    assert (result.returncode, result.stderr.count("\n")) == (64, 1)
    assert "'grpo' is a training: name the run of one of its steps, 'grpo.000001'" in result.stderr


def test_show_suggests_training_name(store: Store) -> None:
    assert "(did you mean grpo?)" in swe_argo("show", "grop", "--store", store.url).stderr


def test_runs_command_lists_trainings(store: Store) -> None:
    Synthetic(run_id="night", instances=1).write(store)
    Synthetic(run_id="other.000001", instances=1).write(store)
    runs, trainings = listed(store).split("\n\n")
    assert [line.split()[4] for line in runs.splitlines()[1:]] == ["night", "other.000001"]
    assert "  12/100  grpo      Qwen/Qwen3.6-35B-A3B  R2E-Gym/" in trainings
    assert held_out_run_of("grpo", 10) in listed(store, whole=True)


def test_broken_training_keeps_list(store: Store) -> None:
    store.put(key(TrainFile, "old"), b"{}")
    lines = listed(store)
    assert "train.json cannot be read" in next(line for line in lines.splitlines() if " old " in line)
    assert "  12/100  grpo " in lines
