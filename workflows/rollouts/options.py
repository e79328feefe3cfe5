"""How rollouts are run, whoever trains with them; what the task is, the exported run says."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from swe_argo.steps.contracts.verdict import RewardRule


class RolloutOptions(BaseModel):
    """What a trainer's configuration may say of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    output_chars: int = Field(10_000, ge=200)
    """Characters of a command's output that the model is shown: its beginning and its end."""
    invalid_patch_penalty: float = Field(0.0, ge=0)
    """Taken off the reward of a rollout whose patch does not apply."""
    suspect: RewardRule = "by-outcome"
    """Rollouts whose verdict is suspect, as ``loss.suspect`` of a training; what is only measured counts all."""
    unconfirmed: RewardRule = "by-outcome"
    """Rollouts whose verdict is unconfirmed, as ``loss.unconfirmed`` of a training."""
    graders: int | None = Field(None, ge=1)
    """Rollouts that one process grades at a time; by default what ``swe-argo run`` grades at a time on a machine with
    this backend, shared by verl's processes, of which each has one at least."""
    threads: int = Field(256, ge=1)
    """Calls of sandboxes that one process waits for at a time."""
