from __future__ import annotations

import random
from typing import Any

from tests.trainer.shuffling import shuffled


def datum(advantage: float) -> dict[str, Any]:
    """Two tokens of a prompt and two that were sampled."""
    inputs = {"logprobs": [0.0, 0.0, -1.0, -2.0], "advantages": [0.0, 0.0, advantage, advantage]}
    return {"model_input": advantage, "loss_fn_inputs": {name: {"data": data} for name, data in inputs.items()}}


def test_each_datum_has_the_advantage_of_some_other_on_what_was_sampled() -> None:
    own = [number / 8 for number in range(-8, 9)]
    data = shuffled([datum(each) for each in own], random.Random(1))
    advantages = [each["loss_fn_inputs"]["advantages"]["data"] for each in data]
    assert [each["model_input"] for each in data] == own
    assert all(each[:2] == [0.0, 0.0] and each[2] == each[3] for each in advantages)
    changed = [each[2] for each in advantages]
    assert sorted(changed) == own
    assert changed != own
