"""Tinker's SDK with a real trainer: sampling, learning, saving and resuming."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import tinker

from tests.trainer.engine import RunningTrainer

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("trainer"),
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the SDK leaves a connection open (0.38)
]
CLOSE = 1e-4
"""Tolerance of log probabilities: float32, computed in batches of other sizes."""


PROMPT = [72, 101, 108, 108, 111, 256]


@dataclass(frozen=True)
class Sampled:
    """Tokens of an answer to PROMPT, and the sampler's log probability of each."""

    tokens: list[int]
    logprobs: list[float]


def sample(client: Any, n: int, seed: int, max_tokens: int = 6) -> list[Sampled]:
    """Sample answers to PROMPT."""
    params = tinker.SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=seed, stop=[])
    answer = client.sample(tinker.ModelInput.from_ints(PROMPT), num_samples=n, sampling_params=params).result()
    return [Sampled(list(sequence.tokens), list(sequence.logprobs)) for sequence in answer.sequences]


def datum(sampled: Sampled, advantage: float) -> tinker.Datum:
    """Return a datum of importance_sampling; prompt tokens have neither advantage nor log probability."""
    tokens = [*PROMPT, *sampled.tokens]
    before = [0.0] * (len(PROMPT) - 1)
    inputs = {
        "target_tokens": tokens[1:],
        "logprobs": [*before, *sampled.logprobs],
        "advantages": [*before, *[advantage] * len(sampled.tokens)],
    }
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def datums(sampled: list[Sampled], *advantages: float) -> list[tinker.Datum]:
    return [datum(item, advantage) for item, advantage in zip(sampled, advantages, strict=True)]


def learn(client: Any, data: list[tinker.Datum], lr: float = 1e-2) -> Any:
    """Make one optimizer step; return the answer of forward_backward."""
    gradients = client.forward_backward(data, "importance_sampling")
    step = client.optim_step(tinker.AdamParams(learning_rate=lr))
    answer = gradients.result()
    step.result()
    return answer


def losses(answer: Any) -> list[float]:
    """Return the log probabilities of all targets, which describe the state of a model."""
    return [float(value) for output in answer.loss_fn_outputs for value in output["logprobs"].data]


@pytest.fixture(scope="module")
def service(trainer: RunningTrainer) -> Iterator[Any]:
    client = tinker.ServiceClient(base_url=trainer.url, api_key=trainer.key)
    yield client
    client.close("success").result()
    gc.collect()  # while the filter holds


@pytest.fixture
def client(service: Any, trainer: RunningTrainer) -> Any:
    return service.create_lora_training_client(base_model=trainer.base_model, rank=4, seed=7).result()


def test_trainer_learns_sampled_tokens(trainer: RunningTrainer, client: Any) -> None:
    sampled = sample(client.save_weights_and_get_sampling_client().result(), n=4, seed=1)
    answer = learn(client, datums(sampled, 1, -1, 1, -1))
    [(_, came)] = [item for item in trainer.bridge.learnt if item[0] == client.model_id]
    assert came["loss_fn"] == "importance_sampling"
    for datum_in, item, out in zip(came["data"], sampled, answer.loss_fn_outputs, strict=True):
        inputs = {name: value["data"] for name, value in datum_in["loss_fn_inputs"].items()}
        tokens = datum_in["model_input"]["chunks"][0]["tokens"]
        assert set(inputs) == {"target_tokens", "logprobs", "advantages"}
        assert [*tokens, inputs["target_tokens"][-1]] == [*PROMPT, *item.tokens]
        assert inputs["target_tokens"][:-1] == tokens[1:]
        assert not any(inputs["advantages"][: len(PROMPT) - 1])
        assert out["logprobs"].data[len(PROMPT) - 1 :] == pytest.approx(item.logprobs, abs=1e-2)
    assert answer.metrics["loss:sum"] == pytest.approx(0, abs=1)


def test_step_raises_rewarded_tokens(client: Any) -> None:
    good, bad = sample(client.save_weights_and_get_sampling_client().result(), n=2, seed=2)
    data = datums([good, bad], 1, -1)
    before = learn(client, data)
    after = client.forward(data, "importance_sampling").result()
    raised, lowered = (
        sum(later["logprobs"].data[len(PROMPT) - 1 :]) - sum(earlier["logprobs"].data[len(PROMPT) - 1 :])
        for earlier, later in zip(before.loss_fn_outputs, after.loss_fn_outputs, strict=True)
    )
    assert raised > 0 > lowered


def test_resumed_state_learns_alike(service: Any, client: Any) -> None:
    sampled = sample(client.save_weights_and_get_sampling_client().result(), n=4, seed=3)
    data = datums(sampled, 1, -1, 0.5, -0.5)
    learn(client, data)
    path = client.save_state("after-one").result().path
    undisturbed = [losses(learn(client, data)) for _ in range(3)]
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    assert resumed.model_id != client.model_id
    again = [losses(learn(resumed, data)) for _ in range(3)]
    for expected, actual in zip(undisturbed, again, strict=True):
        assert expected == pytest.approx(actual, abs=CLOSE)
    assert undisturbed[0] != pytest.approx(undisturbed[2], abs=CLOSE)  # and there was something to learn


def test_lost_gradients_are_dropped(trainer: RunningTrainer, service: Any, client: Any) -> None:
    sampled = sample(client.save_weights_and_get_sampling_client().result(), n=2, seed=4)
    data = datums(sampled, 1, -1)
    path = client.save_state("before").result().path
    undisturbed = losses(learn(client, data)), losses(learn(client, data))
    killed = tinker.ServiceClient(base_url=trainer.url, api_key=trainer.key)
    lost = killed.create_training_client_from_state_with_optimizer(path).result()
    lost.forward_backward([datum(sampled[0], 50.0)], "importance_sampling").result()
    killed.close("errored").result()  # its adapter is free
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    again = losses(learn(resumed, data)), losses(learn(resumed, data))
    assert again[0] == pytest.approx(undisturbed[0], abs=CLOSE)
    assert again[1] == pytest.approx(undisturbed[1], abs=CLOSE)


def test_saved_weights_never_change(service: Any, client: Any) -> None:
    early = client.save_weights_for_sampler("early").result().path
    assert early.endswith("/sampler_weights/early")
    before = sample(service.create_sampling_client(model_path=early).result(), n=2, seed=5)
    data = datums(before, 1, -1)
    for _ in range(3):
        learn(client, data, lr=3e-2)
    late = client.save_weights_for_sampler("late").result().path
    learnt = losses(client.forward(data, "importance_sampling").result())
    changed = sample(service.create_sampling_client(model_path=late).result(), n=2, seed=5)
    again = sample(service.create_sampling_client(model_path=early).result(), n=2, seed=5)
    assert [item.tokens for item in again] == [item.tokens for item in before]
    assert again[0].logprobs == pytest.approx(before[0].logprobs, abs=CLOSE)
    assert changed[0].logprobs != pytest.approx(before[0].logprobs, abs=1e-2)
    assert losses(client.forward(data, "importance_sampling").result()) == pytest.approx(learnt, abs=CLOSE)


def test_later_saved_state_wins(service: Any, client: Any) -> None:
    sampled = sample(client.save_weights_and_get_sampling_client().result(), n=2, seed=6)
    data = datums(sampled, 1, -1)
    client.save_state("here").result()
    learn(client, data)
    path = client.save_state("here", overwrite=True).result().path
    now = losses(client.forward(data, "importance_sampling").result())
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    assert losses(resumed.forward(data, "importance_sampling").result()) == pytest.approx(now, abs=CLOSE)


def test_trainer_offers_only_its_model(trainer: RunningTrainer, service: Any) -> None:
    capabilities = tinker.RestClient(base_url=trainer.url, api_key=trainer.key).get_server_capabilities().result()
    assert [model.model_name for model in capabilities.supported_models] == [trainer.base_model]
    with pytest.raises(tinker.TinkerError, match="there is no model other"):
        service.create_sampling_client(base_model="other").result()
    with pytest.raises(tinker.TinkerError, match="there is nothing at"):
        service.create_sampling_client(model_path="tinker://x/sampler_weights/none").result()
