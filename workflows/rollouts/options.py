"""Options of rollouts for all trainers; the exported run defines the task."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from swe_argo.steps.contracts.verdict import RewardRule


class RolloutOptions(BaseModel):
    """Rollout options in a trainer's configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    output_chars: int = Field(10_000, ge=200)
    """Maximum characters of a command's output that the model sees: its beginning and its end."""
    invalid_patch_penalty: float = Field(0.0, ge=0)
    """Subtracted from the reward of a rollout whose patch does not apply."""
    suspect: RewardRule = "by-outcome"
    """Rule for rollouts with a suspect verdict, as ``loss.suspect`` of a training; measurements count all of them."""
    unconfirmed: RewardRule = "by-outcome"
    """Rule for rollouts with an unconfirmed verdict, as ``loss.unconfirmed`` of a training."""
    graders: int | None = Field(None, ge=1)
    """Concurrent gradings per process; by default those of ``swe-argo run`` on a machine with this backend, shared by
    verl's processes, of which each has at least one."""
    threads: int = Field(256, ge=1)
    """Maximum number of concurrent sandbox calls per process."""
