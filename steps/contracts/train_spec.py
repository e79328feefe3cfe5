"""TrainSpec: everything that a person can ask of a training. One field here is one key of its TOML file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from swe_argo.steps.contracts.ids import is_run_id
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_table import How, Table
from swe_argo.steps.contracts.verdict import RewardRule

NAME_RULE = "letters, digits, '.', '_' and '-', at most 40, starting and ending with a letter or digit"
"""Of a training: the runs of its steps are named after it, and a run's name has at most 63 characters."""


class LossSpec(Table):
    """What a step optimises, as Tinker names it."""

    name: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """The loss of Tinker's forward_backward."""
    clip_low: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Lower limit of the ratio of probabilities (ppo, cispo)."""
    clip_high: Annotated[float, Field(ge=1)] = 1.2
    """Upper limit of it (ppo, cispo)."""
    divide_by_std: bool = False
    """Divide advantages by the standard deviation of their group's rewards; off, as in Dr. GRPO: it would weigh groups
    that are nearly always, or nearly never, solved more."""
    limit_stopped: Literal["keep", "drop", "no_gradient"] = "keep"
    """Rollouts that a limit (steps, tokens, time, money) ended. keep: as any other. drop: absent from their group.
    no_gradient: they count in their group's mean, and nothing is learnt from them."""
    suspect: Annotated[RewardRule, How()] = "by-outcome"
    """Rollouts whose verdict is suspect, by their log or a contradicted confirmation. by-outcome and zero: reward 0.
    drop: absent from their group. keep: the official reward, by which a policy learns to cheat."""
    unconfirmed: Annotated[RewardRule, How()] = "by-outcome"
    """Rollouts whose verdict is unconfirmed. by-outcome: absent from their group if not_confirmed, else the official
    reward (partly, unavailable, never tried)."""
    batch_scale: Literal["sum", "rollouts", "tokens"] = "rollouts"
    """Tinker's losses are sums. rollouts: advantages are divided by the number of rollouts of the batch; tokens: by the
    number of its sampled tokens; sum: by nothing, so that the learning rate has to fit the batch."""


class OptimizerSpec(Table):
    """Tinker's AdamParams."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(gt=0)] = 1e-12
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    grad_clip_norm: Annotated[float, Field(ge=0)] = 0.0
    """Largest norm of the gradient; 0: any."""


class CurriculumSpec(Table):
    """Which instances a step takes, by how often earlier steps solved them."""

    min_solved: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_solved: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Instances whose share of solved rollouts lies outside are put behind the others, once they were tried."""
    after: Annotated[int, Field(ge=1)] = 8
    """Graded rollouts of an instance from which its share is believed."""


class HeldOutSpec(Table):
    """What is measured on the way, with the weights of that moment, by an ordinary run."""

    every: Annotated[int, How(), Field(ge=0)] = 0
    """Steps between two measurements, the first before the first step; 0: none."""
    instance_ids: list[str] = []
    """Instances that are measured with and never trained on."""
    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Instead of ids: this share of the instances, chosen by the seed; at least one."""
    attempts: Annotated[int, Field(ge=1)] = 1
    temperature: Annotated[float | None, Field(ge=0)] = 0.0


class TrainSpec(Table):
    """GRPO on Tinker, with an ordinary run of swe-argo as environment and reward."""

    name: str
    """The training's name; the same name again goes on with it. Then fields that say how it is done may be others:
    steps, checkpoint_every, checkpoint_ttl_s, proxy_url, held_out.every, loss.suspect, loss.unconfirmed, and what a run
    may change."""
    base_model: str
    """Model of Tinker, as get_server_capabilities lists it."""
    tokenizer: str | None = None
    """Folder with its tokenizer.json, or an id of the hub; by default the base model's own."""
    lora_rank: Annotated[int, Field(ge=1)] = 32
    seed: int = 0
    """Of the weights that training begins with, and of the order of instances."""
    steps: Annotated[int, How(), Field(ge=1)] = 100
    """Optimiser steps."""
    lr: Annotated[float, Field(gt=0)] = 1e-5
    """Learning rate."""
    group_size: Annotated[int, Field(ge=2, le=100)] = 8
    """Rollouts of an instance in a step, whose rewards are compared with each other."""
    groups: Annotated[int, Field(ge=1)] = 8
    """Instances of a step."""
    checkpoint_every: Annotated[int, How(), Field(ge=1)] = 10
    """Steps after which a checkpoint is kept for good; those between, by which a killed training goes on, expire."""
    checkpoint_ttl_s: Annotated[int, How(), Field(ge=3600)] = 604_800
    """Seconds that the others live (Tinker's cookbook: a week)."""
    max_lag: Annotated[int, Field(ge=0, le=8)] = 0
    """Steps by which the weights that sample may be behind: with 1 rollouts are collected while the step before is
    learnt. What it was is recorded for each step."""
    proxy_url: Annotated[str | None, How()] = None
    """OpenAI-compatible endpoint that follows this training's weights; by default a proxy of its own is started (on a
    cluster: the chart's)."""
    loss: LossSpec = LossSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    curriculum: CurriculumSpec = CurriculumSpec()
    held_out: HeldOutSpec = HeldOutSpec()
    run: RunSpec = RunSpec()
    """Dataset, selection, agent, sandboxes and grading of the rollouts, as a run has them. ``run.run_id``,
    ``run.attempts`` and the model are the training's own to say."""

    @field_validator("name")
    @classmethod
    def _legal_name(cls, value: str) -> str:
        if not is_run_id(value) or len(value) > 40:
            raise ValueError(f"{value!r} is no name of a training: {NAME_RULE}")
        return value

    @model_validator(mode="after")
    def _held_out_by_one_way(self) -> Self:
        held = self.held_out
        if held.instance_ids and held.share:
            raise ValueError("held_out: instance_ids or share, not both")
        if held.every and not (held.instance_ids or held.share):
            raise ValueError("held_out.every needs held_out.instance_ids or held_out.share")
        if self.curriculum.min_solved > self.curriculum.max_solved:
            raise ValueError("curriculum: min_solved is more than max_solved")
        return self
