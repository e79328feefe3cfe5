"""A training from which a tiny model of random weights can learn, by `swe-argo train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoint, Checkpoints, StepFigures, step_name
from swe_argo.steps.store import open_store
from tests.trainer.engine import RunningTrainer
from tests.workflows.command import swe_argo

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
        """Return the figures of the learnt steps."""
        store = open_store(str(self.store))
        names = [step_name(item.step) for item in self.checkpoints()]
        return [StepFigures.from_bytes(store.get(key(StepFigures, self.name, name=name))) for name in names]

    def checkpoints(self) -> list[Checkpoint]:
        """Return the lines of its checkpoints.jsonl."""
        return Checkpoints(open_store(str(self.store)).get(key(Checkpoints, self.name))).list


def as_json(figures: list[StepFigures]) -> list[dict[str, Any]]:
    """Return the main figures of each step."""
    names = ("step", "reward_mean", "learnt", "kl", "entropy", "loss", "seconds")
    return [{name: getattr(item, name) for name in names} for item in figures]
