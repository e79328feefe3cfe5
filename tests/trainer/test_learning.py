"""GRPO by `swe-argo train` on a real trainer: rewards rise, unless they are shuffled."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoint, Checkpoints, StepFigures, step_name
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.model_server import Answer, model_server, play
from tests.paths import ROOT
from tests.trainer.bridge import shuffled
from tests.trainer.engine import RunningTrainer
from tests.workflows.command import swe_argo
from tests.workflows.models.run import evaluate

group = pytest.mark.xdist_group("trainer")
RESULTS = ROOT / "training-results.json"
SEEDS = (1, 2, 3)
STEPS = int(os.environ.get("SWE_ARGO_TRAINING_STEPS", "20"))
SAMPLES = 64
LR = 2e-3
ENDS = 4
"""Number of steps whose mean reward is compared at the beginning and at the end."""
AGENT = f"{Path(__file__).with_name('cashier.py')}:Cashier"
DATASET, INSTANCE = "harbor:mini", "mini__unit-prices"
TIMEOUT_S = 3600
TOML = """\
name = "{name}"
base_model = "{base_model}"
tokenizer = "{tokenizer}"
lora_rank = 8
seed = {seed}
steps = {steps}
lr = {lr}
group_size = {samples}
groups = 1

[run]
store = "{store}"
workers = {workers}
dataset = "{dataset}"
select.instance_ids = ["{instance}"]
grading.confirm = "never"
agent.name = "{agent}"
llm.temperature = 1.0
llm.max_output_tokens = 4
"""


@dataclass(frozen=True)
class ToyTraining:
    """A training with ``samples`` rollouts per step, all in one group."""

    store: Path
    name: str
    seed: int
    steps: int
    samples: int
    lr: float
    workers: int = 8

    def run(self, trainer: RunningTrainer) -> list[StepFigures]:
        """Run or resume it; return the figures of its steps."""
        file = self.store.parent / f"{self.name}.toml"
        fields = {"base_model": trainer.base_model, "tokenizer": trainer.model, "dataset": DATASET, "agent": AGENT}
        file.write_text(TOML.format(**vars(self), **fields, instance=INSTANCE))
        result = swe_argo("train", "--config", str(file), env=trainer.environment, timeout_s=TIMEOUT_S)
        assert result.returncode == 0, result.stdout + result.stderr
        return self.figures()

    def figures(self) -> list[StepFigures]:
        store = open_store(str(self.store))
        names = [step_name(item.step) for item in self.checkpoints()]
        return [StepFigures.from_bytes(store.get(key(StepFigures, self.name, name=name))) for name in names]

    def checkpoints(self) -> list[Checkpoint]:
        return Checkpoints(open_store(str(self.store)).get(key(Checkpoints, self.name))).list


def as_json(figures: list[StepFigures]) -> list[dict[str, Any]]:
    names = ("step", "reward_mean", "learnt", "kl", "entropy", "loss", "seconds")
    return [{name: getattr(item, name) for name in names} for item in figures]


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
