from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tinker", reason="the extra tinker is not installed")

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.train_spec import LossSpec
from swe_argo.steps.contracts.training import Weights, run_of
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.contracts.verdict import ConfirmationOutcome, Outcome
from swe_argo.steps.store import Store
from swe_argo.steps.training.step_figures import figures_of, lag_of
from swe_argo.steps.training.step_samples import Collected, collect
from tests.steps.training.rounds import NAME, Try, make_run

LONG = (([1], [2, 3, 4]),)
TWO = (([1], [2]), ([9], [8]))
"""Two conversations."""


def collected(store: Store, tries: dict[str, list[Try]], **loss: Any) -> Collected:
    make_run(store, 1, tries)
    name = run_of(NAME, 1)
    run, plan = RunFile.from_bytes(store.get(key(RunFile, name))), Plan.from_bytes(store.get(key(Plan, name)))
    return collect(store, run, plan, LossSpec.model_validate(loss))


def advantages(done: Collected) -> list[float]:
    """The one that each datum's sampled tokens have."""
    return [max(each.datum.loss_fn_inputs["advantages"].data, key=abs) for each in done.batch.samples]


@pytest.mark.parametrize(("scale", "divisor"), [("sum", 1), ("rollouts", 2), ("tokens", 4)])
def test_advantages_are_scaled_by_what_the_batch_counts(store: Store, scale: str, divisor: int) -> None:
    tries = {"a": [Try(1.0, LONG), Try(0.0, (([1], [2]),))], "b": [Try(0.0, LONG), Try(0.0, LONG)]}
    done = collected(store, tries, batch_scale=scale)
    assert advantages(done) == pytest.approx([0.5 / divisor, -0.5 / divisor])


def test_every_conversation_of_a_rollout_has_its_advantage_and_it_counts_once(store: Store) -> None:
    done = collected(store, {"a": [Try(1.0, TWO), Try(0.0), Try(0.0)]}, batch_scale="sum")
    assert advantages(done) == pytest.approx([2 / 3, 2 / 3, -1 / 3, -1 / 3])
    assert done.batch.rollouts == 3


def test_a_verifier_that_gave_no_reward_gave_no_zero(store: Store) -> None:
    done = collected(store, {"a": [Try(1.0), Try(0.0), Try(0.0, outcome=Outcome.NO_REWARD)]}, batch_scale="sum")
    assert advantages(done) == [0.5, -0.5]
    assert done.failed == 1


def test_step_applies_reward_rules_of_its_loss(store: Store) -> None:
    dropped = Try(1.0, integrity="unconfirmed", confirmation=ConfirmationOutcome.NOT_CONFIRMED)
    tries = {"a": [Try(1.0), Try(1.0, integrity="suspect"), dropped]}
    assert advantages(collected(store, tries, batch_scale="sum")) == [0.5, -0.5]
    kept = collected(store, tries, batch_scale="sum", unconfirmed="keep")
    assert advantages(kept) == pytest.approx([1 / 3, -2 / 3, 1 / 3])
    weights = Weights(version="base", state_path=None, sampler_path=None)
    assert figures_of(1, kept, weights, None, {}).groups[0].rewards == [1, 0, 1]


def test_a_rollout_without_a_gradient_is_not_sent_and_makes_no_other_weigh_more(store: Store) -> None:
    tries = {"a": [Try(1.0), Try(0.0), Try(0.0, stop=StopReason.ABSOLUTE_STEPS)]}
    done = collected(store, tries, limit_stopped="no_gradient")
    assert advantages(done) == pytest.approx([2 / 9, -1 / 9])
    assert done.batch.rollouts == 2


def test_the_same_samples_have_the_same_digest_and_others_another(store: Store) -> None:
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
def test_lag_is_how_far_the_oldest_weights_are_behind(before: str, versions: list[str], lag: int) -> None:
    assert lag_of(versions, Weights(version=before, state_path=None, sampler_path=None)) == lag
