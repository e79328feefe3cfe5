from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tinker", reason="the extra tinker is not installed")

import numpy as np

from swe_argo.steps.contracts.train_spec import LossSpec
from swe_argo.steps.training.datums import learned_sample, loss_config
from swe_argo.steps.training.sample_files import Sample
from tests.steps.training.test_advantages import unit

TOKENS = st.lists(
    st.tuples(st.integers(0, 200_000), st.booleans(), st.floats(-50, 0, width=32)), min_size=1, max_size=30
)


def sample_of(tokens: list[tuple[int, bool, float]]) -> Sample:
    ids, sampled, logprobs = zip(*tokens, strict=True)
    arrays = (np.asarray(ids, np.int32), np.asarray(sampled), np.asarray(logprobs, np.float32))
    return Sample(unit(1, 1.0), 0, *arrays, calls=[])


@given(TOKENS, st.floats(-4, 4, width=32).filter(bool))
def test_datum_learns_sampled_tokens(tokens: list[tuple[int, bool, float]], advantage: float) -> None:
    one = learned_sample(sample_of(tokens), advantage)
    if one is None:
        assert not any(sampled for _, sampled, _ in tokens[1:])
        return
    arrays = {name: tensor.to_numpy() for name, tensor in one.datum.loss_fn_inputs.items()}
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        "target_tokens": "int64",
        "logprobs": "float32",
        "advantages": "float32",
    }
    assert one.datum.model_input.to_ints() == [token for token, _, _ in tokens[:-1]]
    assert arrays["target_tokens"].tolist() == [token for token, _, _ in tokens[1:]]
    assert arrays["advantages"].tolist() == [advantage if sampled else 0 for _, sampled, _ in tokens[1:]]
    assert one.logprobs_N.tolist() == [logprob if sampled else 0 for _, sampled, logprob in tokens[1:]]
    assert one.sampled_N.tolist() == [sampled for _, sampled, _ in tokens[1:]]


def test_only_clipping_losses_set_clips() -> None:
    assert loss_config(LossSpec()) is None
    for name in ("ppo", "cispo"):
        assert loss_config(LossSpec(name=name, clip_low=0.5, clip_high=1.5)) == {
            "clip_low_threshold": 0.5,
            "clip_high_threshold": 1.5,
        }
