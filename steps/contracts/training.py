"""Files of a training in its store: its spec, its checkpoints, the figures of each step."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field

from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.record import Part, Place, Raw, Record, finite, to_json
from swe_argo.steps.contracts.train_spec import TrainSpec


class TrainFile(Record):
    """The resolved spec, the first file of a training, at ``key(TrainFile, name)``."""

    file: ClassVar[str] = "train.json"
    place: ClassVar[Place] = Place.TRAINING
    name: str
    spec: TrainSpec
    dataset: DatasetLock
    pool: list[str]
    """Instances to train on, in the dataset's order."""
    held_out: list[str]
    """Instances to measure with, none of them in ``pool``."""
    left_out: dict[str, str] = {}
    """Selected instance that is in neither -> reason: not valid, not gradeable."""
    versions: dict[str, str]
    created_at: str


class Weights(Part):
    """Weights at Tinker, by their paths."""

    version: str
    """Version in samples: ``base``, or the six-digit number of the step that made them."""
    state_path: str | None
    """``tinker://.../weights/...``, with the optimizer's state; None: a new adapter, initialized by the seed."""
    sampler_path: str | None
    """``tinker://.../sampler_weights/...``; None: the base model."""


class Checkpoint(Part):
    """A learnt step: one line of ``checkpoints.jsonl``. A training resumes from the last line."""

    step: int
    """Number of the step, from 1."""
    weights: Weights
    run: str
    """The run with the rollouts."""
    samples_sha256: str
    """Hash of the samples in the order of learning, to prove that none is missing or repeated."""
    rollouts: int
    """Rollouts learnt from; 0 if no group had different rewards: then the weights are those of the previous step."""
    is_permanent: bool = Field(alias="kept")
    """Whether its state is permanent."""
    saved_at: str


class Checkpoints(Raw):
    """All learnt steps in order, one JSON object per line."""

    file: ClassVar[str] = "checkpoints.jsonl"
    place: ClassVar[Place] = Place.TRAINING

    @classmethod
    def of(cls, checkpoints: list[Checkpoint]) -> Self:
        """Return the file with these lines."""
        lines = (to_json(checkpoint.model_dump(mode="json")) + "\n" for checkpoint in checkpoints)
        return cls("".join(lines).encode())

    @property
    def list(self) -> list[Checkpoint]:
        """Return its lines."""
        return [Checkpoint.model_validate_json(line) for line in self.data.splitlines() if line.strip()]


class WeightsFile(Raw):
    """The weights that the proxy serves (``swe_argo.steps.serving.weights.WeightsPointer``): the newest checkpoint."""

    file: ClassVar[str] = "weights.json"
    place: ClassVar[Place] = Place.TRAINING


class HelperLog(Raw):
    """The end of the output of a local training's learner or proxy, at ``key(HelperLog, training, name="learner")``."""

    file: ClassVar[str] = "{name}.log"
    place: ClassVar[Place] = Place.TRAINING


def _only_finite(values: object) -> object:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if finite(value) is not None}


Finite = Annotated[float | None, BeforeValidator(finite)]
"""A number that may diverge: NaN and infinity become None."""


class LearnedGroup(Part):
    """The rollouts of one instance in one step."""

    instance_id: str
    rewards: list[float]
    """Rewards of the rollouts with a verdict."""
    solved: int
    missing: int
    """Rollouts without a verdict or without tokens; they are absent, not zero."""
    constant: bool
    """Whether all rewards are equal, so that nothing is learnt from the group."""


class StepFigures(Record):
    """The figures of a step, at ``key(StepFigures, training, name="000012")``."""

    file: ClassVar[str] = "{name}.json"
    place: ClassVar[Place] = Place.TRAINING_STEPS
    step: int
    run: str
    weights_used: dict[str, int]
    """Version of the weights -> number of calls that they answered."""
    lag: int
    """Steps between the oldest of these weights and those from which the step learnt."""
    groups: list[LearnedGroup]
    rollouts: int
    """Planned rollouts."""
    learnt: int
    """Rollouts learnt from."""
    infra_failures: int
    """Rollouts without a verdict after an infrastructure failure."""
    reward_mean: float | None
    """Mean over rollouts with a verdict; None if there are none."""
    resolved_share: float | None
    prompt_tokens_mean: float | None
    sampled_tokens_mean: float | None
    """Mean per rollout."""
    turns_mean: float | None
    """Mean number of model calls per rollout."""
    kl: Finite
    """Estimate of KL(sampler || learner) per sampled token: mean of the sampler's minus the learner's log probability,
    before the step (k1; http://joschu.net/blog/kl-approx.html)."""
    entropy: Finite
    """Mean negative log probability of the sampled tokens, of the sampler."""
    loss: Finite
    seconds: dict[str, float]
    """Phase -> seconds: collect, samples, learn, save."""
    tokens: dict[str, int]
    """Tokens of all rollouts: prompt, sampled, trained."""
    metrics: Annotated[dict[str, float], BeforeValidator(_only_finite)] = {}
    """Tinker's metrics of the step, without numbers that are not finite."""
    finished_at: str


def step_name(step: int) -> str:
    """Return a step's number in six digits: the version of its weights and the name of its files."""
    return f"{step:06d}"


def run_of(training: str, step: int) -> str:
    """Return the id of the run with a step's rollouts."""
    return f"{training}.{step_name(step)}"


def held_out_run_of(training: str, step: int) -> str:
    """Return the id of the run that measures a step's weights; for step 0 the initial weights."""
    return f"{training}.{step_name(step)}.held-out"
