"""What the runs are called that rollouts of a training are kept as."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.workflows.rollouts.kept_runs import is_kept_run, name_of_kept_run

LONG = "swe_gym.qwen3-32b." * 4


def test_a_run_is_called_as_its_experiment_is() -> None:
    assert name_of_kept_run("grpo_0.1", "val", 5) == "grpo_0.1-val-000005"
    assert name_of_kept_run("grpo", "train", 1_000_000) == "grpo-train-1000000"


@pytest.mark.parametrize("experiment", ["my grpo", "a/b", "a..b", "-a", "", "über", "\u8bd5", LONG, "a" * 50])
def test_one_whose_name_no_run_can_have_has_a_legal_one_of_its_own(experiment: str) -> None:
    names = {name_of_kept_run(experiment, split, step) for split in ("train", "val") for step in (5, 10**9)}
    assert len(names) == 4
    assert all(is_run_id(name) and is_kept_run(name) for name in names)
    assert name_of_kept_run(experiment, "val", 5) not in {f"{experiment}-val-000005", name_of_kept_run("b", "val", 5)}


def test_names_that_differ_in_what_no_run_can_be_called_stay_apart() -> None:
    experiments = ["a b", "a/b", "a_ b", LONG, f"{LONG}2"]
    assert len({name_of_kept_run(each, "val", 5) for each in experiments}) == len(experiments)
