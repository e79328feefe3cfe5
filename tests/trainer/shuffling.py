"""Advantages that belong to other rollouts: the control of a training."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]


def shuffled(data: list[Json], chance: random.Random) -> list[Json]:
    """The datums of a batch, JSON of the wire, each with the advantage of another one on the tokens that were sampled.

    Sampled tokens are those with a log probability; a rollout has one advantage for all of them.
    """
    advantages = [_advantage(item["loss_fn_inputs"]) for item in data]
    chance.shuffle(advantages)
    return [_with_advantage(item, advantage) for item, advantage in zip(data, advantages, strict=True)]


def _advantage(inputs: Json) -> float:
    sampled = zip(inputs["advantages"]["data"], inputs["logprobs"]["data"], strict=True)
    return next((advantage for advantage, logprob in sampled if logprob), 0.0)


def _with_advantage(datum: Json, advantage: float) -> Json:
    inputs = datum["loss_fn_inputs"]
    values = [advantage if logprob else 0.0 for logprob in inputs["logprobs"]["data"]]
    return datum | {"loss_fn_inputs": inputs | {"advantages": inputs["advantages"] | {"data": values}}}
