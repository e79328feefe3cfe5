from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from swe_argo.steps.contracts.training import TrainFile
from swe_argo.steps.store import Store

if TYPE_CHECKING:  # the tests that need the extra tinker say so themselves
    from swe_argo.steps.training.learner import Learner
    from tests.tinker_server.server import TinkerServer

NewLearner = Callable[..., "Learner"]


@pytest.fixture
def tinker(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerServer]:
    """A server of Tinker's protocol that trains. Its tests ignore ResourceWarning, see there."""
    from tests.tinker_server.server import Sampled, tinker_server

    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with tinker_server(lambda *_: Sampled([1])) as server:
        yield server
        gc.collect()  # connections that the SDK leaves open are told while their test's filter holds


@pytest.fixture
def new_learner(store: Store, tinker: TinkerServer) -> Iterator[NewLearner]:
    """Makes learners of a training, which are closed when the test is over: else they send heartbeats for ever."""
    from swe_argo.steps.training.learner import Learner
    from tests.tinker_server.server import KEY

    with ExitStack() as open_learners:

        def make(training: TrainFile, **options: Any) -> Learner:
            service: dict[str, Any] = {"api_key": KEY, "base_url": tinker.url, "timeout_s": 60}
            learner = Learner(store, training, **service | options)
            open_learners.callback(learner.close)
            return learner

        yield make
