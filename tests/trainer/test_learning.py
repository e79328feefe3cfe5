"""GRPO by `swe-argo train` on a real trainer: rewards rise, unless they are shuffled."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.model_server import Answer, model_server, play
from tests.paths import ROOT
from tests.trainer.bridge import shuffled
from tests.trainer.engine import RunningTrainer
from tests.trainer.toy import AGENT, DATASET, INSTANCE, ToyTraining, as_json
from tests.workflows.models.run import evaluate

group = pytest.mark.xdist_group("trainer")
RESULTS = ROOT / "training-results.json"
SEEDS = (1, 2, 3)
STEPS = int(os.environ.get("SWE_ARGO_TRAINING_STEPS", "20"))
SAMPLES = 64
LR = 2e-3
ENDS = 4
"""Number of steps whose mean reward is compared at the beginning and at the end."""


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("A1b2", 0.5), *(pytest.param(*case, marks=pytest.mark.long) for case in (("Abc~", 1.0), ("1234A", 0.0)))],
)
def test_reward_is_share_of_divisors(tmp_path: Path, answer: str, reward: float) -> None:
    with model_server(play(Answer(answer))) as server:
        result = evaluate(server, tmp_path / "store", AGENT, "--dataset", DATASET, instances=[INSTANCE])
    assert result.returncode == 0, result.stdout + result.stderr
    grade = GradeRecord.from_bytes(open_store(str(tmp_path / "store")).get(key(GradeRecord, "run", INSTANCE, 1)))
    assert grade.reward == reward


def datum(advantage: float) -> dict[str, Any]:
    """Return a datum of two prompt tokens and two sampled ones."""
    inputs = {"logprobs": [0.0, 0.0, -1.0, -2.0], "advantages": [0.0, 0.0, advantage, advantage]}
    return {"model_input": advantage, "loss_fn_inputs": {name: {"data": data} for name, data in inputs.items()}}


def test_shuffled_datums_swap_advantages() -> None:
    own = [number / 8 for number in range(-8, 9)]
    data = shuffled([datum(item) for item in own], random.Random(1))
    advantages = [item["loss_fn_inputs"]["advantages"]["data"] for item in data]
    assert [item["model_input"] for item in data] == own
    assert all(item[:2] == [0.0, 0.0] and item[2] == item[3] for item in advantages)
    changed = [item[2] for item in advantages]
    assert sorted(changed) == own
    assert changed != own


@pytest.fixture
def not_shuffled(trainer: RunningTrainer) -> Iterator[None]:
    """Give the next training its own rewards, whatever the test's result."""
    yield
    trainer.bridge.shuffling = None


@group
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_training_learns_its_samples(trainer: RunningTrainer, tmp_path: Path) -> None:
    training = ToyTraining(tmp_path / "store", "short", seed=1, steps=2, samples=8, lr=LR)
    steps = training.run(trainer)
    assert [item.rollouts for item in steps] == [8, 8]
    assert [item.weights_used for item in steps] == [{"base": 8}, {training.checkpoints()[0].weights.version: 8}]
    learnt = [item for item in steps if item.learnt]
    for figures, (_, content) in zip(reversed(learnt), reversed(trainer.bridge.learnt), strict=False):
        inputs = [{name: value["data"] for name, value in item["loss_fn_inputs"].items()} for item in content["data"]]
        assert len(inputs) == figures.learnt
        assert all(set(item) == {"target_tokens", "logprobs", "advantages"} for item in inputs)
        assert sum(item["advantages"][-1] for item in inputs) == pytest.approx(0, abs=1e-5)
        assert figures.kl == pytest.approx(0, abs=1e-2)  # who learns has the weights that sampled
    before = training.checkpoints()
    more = replace(training, steps=3)
    more.run(trainer)
    assert more.checkpoints()[:2] == before
    assert more.figures()[2].weights_used == {before[1].weights.version: 8}


@group
@pytest.mark.training
@pytest.mark.timeout(3 * 3600)
@pytest.mark.usefixtures("not_shuffled")
def test_reward_rises_unless_shuffled(trainer: RunningTrainer, tmp_path: Path) -> None:
    rewards: dict[str, dict[int, list[float]]] = {"own": {}, "shuffled": {}}
    figures = {}
    for seed in SEEDS:
        for arm, by_seed in rewards.items():
            trainer.bridge.shuffling = random.Random(seed) if arm == "shuffled" else None
            training = ToyTraining(tmp_path / "store", f"{arm}-{seed}", seed, STEPS, SAMPLES, LR)
            steps = training.run(trainer)
            by_seed[seed] = [item.reward_mean or 0.0 for item in steps]
            figures[training.name] = as_json(steps)
            RESULTS.write_text(json.dumps(figures, indent=1))
            print(f"{training.name}: {' '.join(f'{reward:.3f}' for reward in by_seed[seed])}")  # noqa: T201
    begins = {arm: {seed: mean(item[:ENDS]) for seed, item in by_seed.items()} for arm, by_seed in rewards.items()}
    ends = {arm: {seed: mean(item[-ENDS:]) for seed, item in by_seed.items()} for arm, by_seed in rewards.items()}
    print(f"first {ENDS} steps: {begins}\nlast {ENDS} steps: {ends}")  # noqa: T201
    for seed in SEEDS:
        assert ends["own"][seed] > begins["own"][seed]
        assert ends["own"][seed] > ends["shuffled"][seed]
