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


def test_a_training_is_shown_by_its_name_with_its_last_steps(store: Store) -> None:
    done = swe_argo("show", "grpo", "--store", store.url)
    assert done.returncode == 0
    first, *lines = done.stdout.splitlines()
    assert first == "grpo: 12 of 100 steps learnt"
    assert [line.split()[0] for line in lines if line[:4].strip().isdigit()] == [str(step) for step in range(3, 13)]
    assert "held out, before the first step: " in done.stdout
    assert f"no page yet: swe-argo report grpo --store {store.url}" in done.stdout


def test_report_writes_the_page_of_a_training(store: Store) -> None:
    done = swe_argo("report", "grpo", "--store", store.url)
    assert (done.returncode, done.stderr) == (0, "")
    place = store.locate(training_page_key("grpo"))
    assert done.stdout.splitlines()[-1] == f"page: {place}"
    assert Path(place).is_file()


def test_the_report_of_a_measurement_writes_the_page_again(store: Store) -> None:
    done = swe_argo("report", held_out_run_of("grpo", 10), "--store", store.url)
    assert done.returncode in (0, 3)
    assert "Held out, after step 10" in store.get(training_page_key("grpo")).decode()


def test_an_instance_of_a_training_is_refused_with_the_names_of_its_runs(store: Store) -> None:
    done = swe_argo("show", "grpo", "django__django-1", "--store", store.url)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "'grpo' is a training; the run of its first step is 'grpo.000001'" in done.stderr


def test_a_name_that_was_mistyped_may_be_that_of_a_training(store: Store) -> None:
    assert "(did you mean grpo?)" in swe_argo("show", "grop", "--store", store.url).stderr


def test_runs_lists_a_training_in_place_of_the_runs_of_its_steps(store: Store) -> None:
    Synthetic(run_id="night", instances=1).write(store)
    Synthetic(run_id="other.000001", instances=1).write(store)
    runs, trainings = listed(store).split("\n\n")
    assert [line.split()[4] for line in runs.splitlines()[1:]] == ["night", "other.000001"]
    assert "  12/100  grpo      Qwen/Qwen3.6-35B-A3B  R2E-Gym/" in trainings
    assert held_out_run_of("grpo", 10) in listed(store, whole=True)


def test_a_training_that_cannot_be_read_costs_its_own_line_only(store: Store) -> None:
    store.put(key(TrainFile, "old"), b"{}")
    lines = listed(store)
    assert "train.json cannot be read" in next(line for line in lines.splitlines() if " old " in line)
    assert "  12/100  grpo " in lines
