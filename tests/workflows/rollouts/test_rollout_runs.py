"""What the runs are called that rollouts of a training are kept as."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.workflows.rollouts.rollout_runs import is_rollout_run, rollout_run_name

LONG = "swe_gym.qwen3-32b." * 4


def test_rollout_run_has_experiment_name() -> None:
    assert rollout_run_name("grpo_0.1", "val", 5) == "grpo_0.1-val-000005"
    assert rollout_run_name("grpo", "train", 1_000_000) == "grpo-train-1000000"


@pytest.mark.parametrize("experiment", ["my grpo", "a/b", "a..b", "-a", "", "über", "\u8bd5", LONG, "a" * 50])
def test_illegal_run_name_is_replaced(experiment: str) -> None:
    names = {rollout_run_name(experiment, split, step) for split in ("train", "val") for step in (5, 10**9)}
    assert len(names) == 4
    assert all(is_run_id(name) and is_rollout_run(name) for name in names)
    assert rollout_run_name(experiment, "val", 5) not in {f"{experiment}-val-000005", rollout_run_name("b", "val", 5)}


def test_rollout_run_names_differ() -> None:
    experiments = ["a b", "a/b", "a_ b", LONG, f"{LONG}2"]
    assert len({rollout_run_name(experiment, "val", 5) for experiment in experiments}) == len(experiments)
