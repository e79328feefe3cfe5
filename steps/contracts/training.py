"""What a training leaves in its store: its spec, its checkpoints, the figures of each step."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator

from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.record import Part, Place, Raw, Record, finite, to_json
from swe_argo.steps.contracts.train_spec import TrainSpec


class TrainFile(Record):
    """The spec and what it resolved to; the first file of a training. ``key(TrainFile, name)`` is where it lies."""

    file: ClassVar[str] = "train.json"
    place: ClassVar[Place] = Place.TRAINING
    name: str
    spec: TrainSpec
    dataset: DatasetLock
    pool: list[str]
    """Instances to train on, in the dataset's order."""
    held_out: list[str]
    """Instances to measure with; none of them is in ``pool``."""
    left_out: dict[str, str] = {}
    """Selected instance that is in neither -> why: not valid, not gradeable."""
    versions: dict[str, str]
    created_at: str


class Weights(Part):
    """Weights of Tinker, by their paths."""

    version: str
    """``base``, or the number of the step that made them, six digits: what samples name them by."""
    state_path: str | None
    """``tinker://.../weights/...``, the optimizer's state with it; None: a new adapter, which the seed makes."""
    sampler_path: str | None
    """``tinker://.../sampler_weights/...``; None: the base model."""


class Checkpoint(Part):
    """A step that was learnt. One line of ``checkpoints.jsonl``, whose last decides where a training goes on."""

    step: int
    """Number of the step, from 1."""
    weights: Weights
    run: str
    """The run whose rollouts it learnt from."""
    samples_sha256: str
    """Of the samples, in the order in which they were learnt: nothing twice, nothing lost."""
    rollouts: int
    """Rollouts learnt from; 0 where no group had two different rewards: then the weights are the step before's."""
    kept: bool
    """Whether its state is kept for good."""
    saved_at: str


class Checkpoints(Raw):
    """All steps that were learnt, a JSON object a line, in order."""

    file: ClassVar[str] = "checkpoints.jsonl"
    place: ClassVar[Place] = Place.TRAINING

    @classmethod
    def of(cls, checkpoints: list[Checkpoint]) -> Self:
        """The file with these lines."""
        return cls("".join(to_json(each.model_dump(mode="json")) + "\n" for each in checkpoints).encode())

    @property
    def list(self) -> list[Checkpoint]:
        """Its lines."""
        return [Checkpoint.model_validate_json(line) for line in self.data.splitlines() if line.strip()]


class WeightsFile(Raw):
    """Which weights the proxy serves (``swe_argo.steps.serving.weights.WeightsPointer``): the newest checkpoint's."""

    file: ClassVar[str] = "weights.json"
    place: ClassVar[Place] = Place.TRAINING


class HelperLog(Raw):
    """What the learner or the proxy of a training on one machine printed, its end: ``key(HelperLog, training,
    name="learner")`` is where it lies."""

    file: ClassVar[str] = "{name}.log"
    place: ClassVar[Place] = Place.TRAINING


def _only_finite(values: object) -> object:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if finite(value) is not None}


Finite = Annotated[float | None, BeforeValidator(finite)]
"""A figure that may diverge: NaN and infinity are unknown (None)."""


class LearnedGroup(Part):
    """One instance in one step."""

    instance_id: str
    rewards: list[float]
    """Of its rollouts that have a verdict."""
    solved: int
    missing: int
    """Rollouts without a verdict, or without tokens: absent, no zeros."""
    constant: bool
    """All rewards are equal, so that nothing is learnt from it."""


class StepFigures(Record):
    """What a step was, in figures: ``key(StepFigures, training, name="000012")`` is where it lies."""

    file: ClassVar[str] = "{name}.json"
    place: ClassVar[Place] = Place.TRAINING_STEPS
    step: int
    run: str
    weights_used: dict[str, int]
    """Version of the weights -> calls that it answered."""
    lag: int
    """Steps by which the oldest of these were behind those that the step began to learn with."""
    groups: list[LearnedGroup]
    rollouts: int
    """Rollouts that there should be."""
    learnt: int
    """Rollouts learnt from."""
    infra_failures: int
    """Rollouts without a verdict, for a failure that is not the agent's."""
    reward_mean: float | None
    """Over rollouts with a verdict; None: there are none."""
    resolved_share: float | None
    prompt_tokens_mean: float | None
    sampled_tokens_mean: float | None
    """A rollout."""
    turns_mean: float | None
    """Calls of the model a rollout."""
    kl: Finite
    """Estimate of KL(sampler || learner) a sampled token: mean of sampler's minus learner's log probability, before the
    step (k1; http://joschu.net/blog/kl-approx.html)."""
    entropy: Finite
    """Mean of minus the sampled tokens' log probabilities, of the sampler."""
    loss: Finite
    seconds: dict[str, float]
    """Phase -> seconds: collect, samples, learn, save."""
    tokens: dict[str, int]
    """prompt, sampled, trained: of all rollouts."""
    metrics: Annotated[dict[str, float], BeforeValidator(_only_finite)] = {}
    """Return the metrics that Tinker reports for the step, without numbers that are not finite."""
    finished_at: str


def step_name(step: int) -> str:
    """Six digits: the version of the weights that a step makes, and the name of its files."""
    return f"{step:06d}"


def run_of(training: str, step: int) -> str:
    """The run whose rollouts a step learns from."""
    return f"{training}.{step_name(step)}"


def held_out_run_of(training: str, step: int) -> str:
    """The run that measures the weights that a step made, or, of step 0, those that training begins with."""
    return f"{training}.{step_name(step)}.held-out"
