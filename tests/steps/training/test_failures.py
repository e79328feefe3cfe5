from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints, StepFigures, TrainFile
from swe_argo.steps.errors import ConfigError, InfraError, StepError
from swe_argo.steps.store import Store
from swe_argo.steps.training.checkpoints import CheckpointLog
from tests.broken_s3 import breakable
from tests.steps.training.conftest import NewLearner
from tests.steps.training.rounds import NAME, Try, make_run, make_training
from tests.tinker_server.server import TinkerServer

if TYPE_CHECKING:
    from swe_argo.steps.training.learner import Learner

# The SDK asks for its configuration over a connection that it never closes (0.38, InternalClientHolder).
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CHANGES = ("forward_backward", "optim_step", "save_weights", "save_weights_for_sampler")
MIXED = {"a": [Try(1.0), Try(0.0)]}


@pytest.fixture
def training(store: Store) -> TrainFile:
    make_run(store, 1, MIXED)
    make_run(store, 2, MIXED)
    return make_training(store)


def states(tinker: TinkerServer, store: Store) -> list[str]:
    lines = Checkpoints(store.get(key(Checkpoints, NAME))).list
    return [tinker.trainer.states[checkpoint.weights.state_path] for checkpoint in lines]


def undisturbed(
    new_learner: NewLearner, tinker: TinkerServer, store: Store, training: TrainFile, steps: int
) -> list[str]:
    """States of a training that nothing happened to; it leaves nothing in the store."""
    learner = new_learner(training)
    for step in range(1, steps + 1):
        learner.learn(step)
    learner.close()
    expected = states(tinker, store)
    store.delete_many([key(Checkpoints, NAME)])
    return expected


def test_sdk_retries_transient_failures(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    expected = undisturbed(new_learner, tinker, store, training, 1)
    refused = set()

    def refuse_once(route: str) -> int | None:
        first = route not in refused
        refused.add(route)
        return 503 if first else None

    tinker.before = refuse_once
    new_learner(training).learn(1)
    assert states(tinker, store) == expected
    assert set(CHANGES) < refused


def test_cut_request_takes_effect_once(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    expected = undisturbed(new_learner, tinker, store, training, 1)
    before, cut = len(tinker.requested), set()
    host, _, port = tinker.url.removeprefix("http://").partition(":")
    with breakable("127.0.0.1", 0, (host, int(port))) as way:

        def cut_once(route: str) -> None:
            if route not in cut:
                cut.add(route)
                way.break_()
                way.mend()

        tinker.before = cut_once
        learner = new_learner(training, base_url=way.url)
        learner.learn(1)
        learner.close()
    assert states(tinker, store) == expected
    assert all(tinker.requested[before:].count(route) > 1 for route in CHANGES)


@pytest.mark.parametrize("route", CHANGES)
def test_lost_result_is_learnt_again(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile, route: str
) -> None:
    expected = undisturbed(new_learner, tinker, store, training, 2)
    learner = new_learner(training)
    learner.learn(1)
    tinker.trainer.lost.add(route)
    with pytest.raises(InfraError, match=r"request to Tinker to .* failed: Promise expired"):
        learner.learn(2)
    assert len(states(tinker, store)) == 1
    learner.learn(2)
    assert states(tinker, store) == expected
    learner.close()
    assert tinker.ended[-2:] == ["errored", "success"]


def fail_of(tinker: TinkerServer, learner: Learner, category: str) -> StepError:
    """What comes of a gradient that fails so."""
    tinker.trainer.fail["forward_backward"] = [("too long", category)]
    with pytest.raises(
        StepError, match=r"request to Tinker to learn with the loss importance_sampling failed: .* too long"
    ) as caught:
        learner.learn(1)
    return caught.value


def test_failure_category_sets_class(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    learner = new_learner(training)
    of_user = fail_of(tinker, learner, "user")
    assert isinstance(of_user, ConfigError)
    assert of_user.field == "loss"
    assert isinstance(fail_of(tinker, learner, "server"), InfraError)
    assert store.get_many([key(Checkpoints, NAME)]) == {}


def test_silent_service_times_out(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    tinker.trainer.stuck.add("optim_step")
    with pytest.raises(InfraError, match=r"request to Tinker to learn .* failed: no answer within 8 s") as caught:
        new_learner(training, timeout_s=8).learn(1)
    assert caught.value.failure_class is FailureClass.MODEL


def test_expired_state_is_named(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    first = new_learner(training)
    checkpoint = first.learn(1)
    first.close()
    del tinker.trainer.states[checkpoint.weights.state_path]
    with pytest.raises(
        ConfigError, match=rf"the state after step 000001, {checkpoint.weights.state_path} .*expired, take the lines"
    ):
        new_learner(training).learn(2)


def test_refused_key_is_named(new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile) -> None:
    with pytest.raises(ConfigError, match=r"TINKER_API_KEY: .*no such key"):
        new_learner(training, api_key="tml-other").learn(1)
    with pytest.raises(ConfigError, match="TINKER_API_KEY: "):
        new_learner(training, api_key="of another form").learn(1)


@pytest.mark.parametrize("data", [b'{"step": 1', b"\x89PNG\n"])
def test_broken_checkpoints_are_one_line(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile, data: bytes
) -> None:
    store.put(key(Checkpoints, NAME), data)
    reason = r"line 1 of .*checkpoints.jsonl is not a checkpoint: remove it and all later lines to resume"
    with pytest.raises(ConfigError, match=reason):
        new_learner(training).learn(1)
    assert tinker.requested == []


def test_missing_step_is_refused(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    learner = new_learner(training)
    learner.learn(1)
    second = learner.learn(2)
    learner.close()
    store.put(key(Checkpoints, NAME), Checkpoints.of([second]).to_bytes())
    with pytest.raises(ConfigError, match=r"line 1 of .* has step 2 instead of step 1"):
        new_learner(training).learn(2)


def test_second_writer_is_refused(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    log, other = CheckpointLog(store, NAME), CheckpointLog(store, NAME)
    assert log.read() == other.read() == []
    learner = new_learner(training)
    checkpoint = learner.learn(1)
    learner.close()
    with pytest.raises(InfraError, match=r"another learner has written step 1 to "):
        other.append([checkpoint])
    assert log.read() == [checkpoint]


def test_step_without_line_is_relearnt(
    new_learner: NewLearner, store: Store, tinker: TinkerServer, training: TrainFile
) -> None:
    expected = undisturbed(new_learner, tinker, store, training, 1)
    assert [name for name in store.keys("trainings/") if name.endswith("000001.json")]  # its figures are there
    learner = new_learner(training)
    learner.learn(1)
    learner.close()
    assert states(tinker, store) == expected
    assert StepFigures.from_bytes(store.get("trainings/toy/steps/000001.json")).learnt == 2
