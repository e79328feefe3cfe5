from __future__ import annotations

import random
from typing import Any

from tests.trainer.shuffling import shuffled


def datum(advantage: float) -> dict[str, Any]:
    """Two tokens of a prompt and two that were sampled."""
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
