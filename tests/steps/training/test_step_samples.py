"""The samples of a step: advantages over the run's groups, and the datums that Tinker learns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tinker", reason="the extra tinker is not installed")

import numpy as np

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import LossSpec, Weights, run_of
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.contracts.verdict import ConfirmationOutcome, Outcome
from swe_argo.steps.store import Store
from swe_argo.steps.training.samples import Sample
from swe_argo.steps.training.step_samples import Collected, collect, figures_of, lag_of
from swe_argo.steps.training.tinker_trainer import learned_sample, loss_config
from tests.steps.training.rounds import NAME, Try, make_run
from tests.steps.training.test_advantages import unit

LONG = (([1], [2, 3, 4]),)
TWO = (([1], [2]), ([9], [8]))
"""Two conversations."""


def collected(store: Store, tries: dict[str, list[Try]], **loss: Any) -> Collected:
    make_run(store, 1, tries)
    name = run_of(NAME, 1)
    run, plan = RunFile.from_bytes(store.get(key(RunFile, name))), Plan.from_bytes(store.get(key(Plan, name)))
    return collect(store, run, plan, LossSpec.model_validate(loss))


def advantages(samples: Collected) -> list[float]:
    return [max(sample.datum.loss_fn_inputs["advantages"].data, key=abs) for sample in samples.batch.samples]


@pytest.mark.parametrize(("scale", "divisor"), [("sum", 1), ("rollouts", 2), ("tokens", 4)])
def test_advantages_use_the_batch_scale(store: Store, scale: str, divisor: int) -> None:
    tries = {"a": [Try(1.0, LONG), Try(0.0, (([1], [2]),))], "b": [Try(0.0, LONG), Try(0.0, LONG)]}
    samples = collected(store, tries, batch_scale=scale)
    assert advantages(samples) == pytest.approx([0.5 / divisor, -0.5 / divisor])


def test_conversations_share_an_advantage(store: Store) -> None:
    samples = collected(store, {"a": [Try(1.0, TWO), Try(0.0), Try(0.0)]}, batch_scale="sum")
    assert advantages(samples) == pytest.approx([2 / 3, 2 / 3, -1 / 3, -1 / 3])
    assert samples.batch.rollouts == 3


def test_missing_reward_is_not_zero(store: Store) -> None:
    samples = collected(store, {"a": [Try(1.0), Try(0.0), Try(0.0, outcome=Outcome.NO_REWARD)]}, batch_scale="sum")
    assert advantages(samples) == [0.5, -0.5]
    assert samples.failed == 1


def test_step_applies_loss_reward_rules(store: Store) -> None:
    dropped = Try(1.0, integrity="unconfirmed", confirmation=ConfirmationOutcome.NOT_CONFIRMED)
    tries = {"a": [Try(1.0), Try(1.0, integrity="suspect"), dropped]}
    assert advantages(collected(store, tries, batch_scale="sum")) == [0.5, -0.5]
    unconfirmed = collected(store, tries, batch_scale="sum", unconfirmed="keep")
    assert advantages(unconfirmed) == pytest.approx([1 / 3, -2 / 3, 1 / 3])
    weights = Weights(version="base", state_path=None, sampler_path=None)
    assert figures_of(1, unconfirmed, weights, None, {}).groups[0].rewards == [1, 0, 1]


def test_no_gradient_rollout_is_dropped(store: Store) -> None:
    tries = {"a": [Try(1.0), Try(0.0), Try(0.0, stop=StopReason.ABSOLUTE_STEPS)]}
    samples = collected(store, tries, limit_stopped="no_gradient")
    assert advantages(samples) == pytest.approx([2 / 9, -1 / 9])
    assert samples.batch.rollouts == 2


def test_digest_depends_on_samples_only(store: Store) -> None:
    tries = {"a": [Try(1.0), Try(0.0)], "b": [Try(0.0), Try(1.0)]}
    first = collected(store, tries).batch.sha256
    assert collected(store, tries).batch.sha256 == first
    assert collected(store, dict(reversed(tries.items()))).batch.sha256 != first
    assert collected(store, tries | {"b": [Try(1.0), Try(0.0)]}).batch.sha256 != first


@pytest.mark.parametrize(
    ("before", "versions", "lag"),
    [
        ("base", ["base"], 0),
        ("000003", ["000003"], 0),
        ("000003", ["000003", "000001"], 2),
        ("000003", ["base"], 3),
        ("000003", ["unknown", "fp_44709d6fcb"], 0),
        ("000003", [], 0),
    ],
)
def test_lag_counts_from_oldest_weights(before: str, versions: list[str], lag: int) -> None:
    assert lag_of(versions, Weights(version=before, state_path=None, sampler_path=None)) == lag


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
    dtypes = {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32"}
    assert {name: str(array.dtype) for name, array in arrays.items()} == dtypes
    assert one.datum.model_input.to_ints() == [token for token, _, _ in tokens[:-1]]
    assert arrays["target_tokens"].tolist() == [token for token, _, _ in tokens[1:]]
    assert arrays["advantages"].tolist() == [advantage if sampled else 0 for _, sampled, _ in tokens[1:]]
    assert one.logprobs_N.tolist() == [logprob if sampled else 0 for _, sampled, logprob in tokens[1:]]
    assert one.sampled_N.tolist() == [sampled for _, sampled, _ in tokens[1:]]


def test_only_clipping_losses_set_clips() -> None:
    assert loss_config(LossSpec()) is None
    clips = {"clip_low_threshold": 0.5, "clip_high_threshold": 1.5}
    for name in ("ppo", "cispo"):
        assert loss_config(LossSpec(name=name, clip_low=0.5, clip_high=1.5)) == clips
