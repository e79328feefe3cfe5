"""Training by the SDK's own calls, as small as it can be: prompts, samples, datums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tinker

PROMPT = [72, 101, 108, 108, 111, 256]


@dataclass(frozen=True)
class Sampled:
    """``tokens``: what the model wrote after PROMPT; ``logprobs`` of each, by the sampler."""

    tokens: list[int]
    logprobs: list[float]


def sample(client: Any, n: int, seed: int, max_tokens: int = 6) -> list[Sampled]:
    """What the model of a SamplingClient writes."""
    params = tinker.SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=seed, stop=[])
    answer = client.sample(tinker.ModelInput.from_ints(PROMPT), num_samples=n, sampling_params=params).result()
    return [Sampled(list(sequence.tokens), list(sequence.logprobs)) for sequence in answer.sequences]


def datum(sampled: Sampled, advantage: float) -> tinker.Datum:
    """Of the loss importance_sampling: prompt tokens have neither advantage nor log probability."""
    tokens = [*PROMPT, *sampled.tokens]
    before = [0.0] * (len(PROMPT) - 1)
    inputs = {
        "target_tokens": tokens[1:],
        "logprobs": [*before, *sampled.logprobs],
        "advantages": [*before, *[advantage] * len(sampled.tokens)],
    }
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def learn(client: Any, data: list[tinker.Datum], lr: float = 1e-2) -> Any:
    """One step of the optimiser; what forward_backward answered."""
    gradients = client.forward_backward(data, "importance_sampling")
    step = client.optim_step(tinker.AdamParams(learning_rate=lr))
    answer = gradients.result()
    step.result()
    return answer


def losses(answer: Any) -> list[float]:
    """Log probabilities of all targets, as forward_backward found them: the state of a model in figures."""
    return [float(value) for output in answer.loss_fn_outputs for value in output["logprobs"].data]
