"""Conversion of samples with advantages to Tinker's datums, and the loss configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tinker

from swe_argo.steps.contracts.train_spec import LossSpec
from swe_argo.steps.training.sample_files import Sample


@dataclass(frozen=True)
class LearnedSample:
    """A sample as it is sent; N = its tokens minus one, because each is predicted from those before it."""

    datum: tinker.Datum
    """For RL losses exactly the keys ``target_tokens`` int64, ``logprobs`` float32, ``advantages`` float32, each N."""
    sampled_N: Any
    """bool array: whether the model wrote the token to predict."""

    @property
    def logprobs_N(self) -> Any:
        """float32 array: the sampler's log probabilities."""
        return self.datum.loss_fn_inputs["logprobs"].to_numpy()


def learned_sample(sample: Sample, advantage: float) -> LearnedSample | None:
    """Return a sample to learn from; None if the model wrote no token that can be predicted from earlier ones.

    Tokens that the model did not write are masked by advantage 0 (and log probability 0): Tinker rejects a ``mask`` or
    ``weights`` beside the inputs of an RL loss as an error of the user.
    """
    sampled_N = np.asarray(sample.sampled[1:], bool)
    if not sampled_N.any():
        return None
    inputs = {
        "target_tokens": np.asarray(sample.tokens[1:], np.int64),
        "logprobs": np.where(sampled_N, sample.logprobs[1:], 0).astype(np.float32),
        "advantages": np.where(sampled_N, np.float32(advantage), np.float32(0)),
    }
    return LearnedSample(tinker.Datum(tinker.ModelInput.from_ints(sample.tokens[:-1].tolist()), inputs), sampled_N)


def loss_config(loss: LossSpec) -> dict[str, float] | None:
    """Return the ``loss_fn_config`` of ``forward_backward``; None for importance_sampling, which has no settings."""
    if loss.name == "importance_sampling":
        return None
    return {"clip_low_threshold": loss.clip_low, "clip_high_threshold": loss.clip_high}
