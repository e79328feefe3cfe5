from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoint, Checkpoints, StepFigures, TrainFile, step_name
from swe_argo.steps.store import Store
from tests.one_certificate import one_certificate
from tests.steps.training.rounds import NAME

__all__ = ["one_certificate"]

if TYPE_CHECKING:  # the tests that need the extra tinker say so themselves
    from swe_argo.steps.training.learner import Learner
    from tests.tinker_server.server import TinkerServer


@dataclass
class Lab:
    """A store, a server of Tinker's protocol that trains, and learners, closed at the end of the test."""

    store: Store
    tinker: TinkerServer
    _open: ExitStack = field(default_factory=ExitStack)

    def learner(self, training: TrainFile, **options: Any) -> Learner:
        """Start a learner. Left open, it sends heartbeats for ever."""
        from swe_argo.steps.training.learner import Learner
        from tests.tinker_server.server import KEY

        service: dict[str, Any] = {"api_key": KEY, "base_url": self.tinker.url, "timeout_s": 60}
        learner = Learner(self.store, training, **service | options)
        self._open.callback(learner.close)
        return learner

    def learn(self, training: TrainFile, *steps: int, **options: Any) -> Checkpoint:
        learner = self.learner(training, **options)
        checkpoint = [learner.learn(step) for step in steps][-1]
        learner.close()
        return checkpoint

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return Checkpoints(self.store.get(key(Checkpoints, NAME))).list

    @property
    def states(self) -> list[str]:
        """The saved state of each checkpoint: the server's hash over all that it learnt."""
        return [self.tinker.trainer.states[checkpoint.weights.state_path] for checkpoint in self.checkpoints]

    def undisturbed(self, training: TrainFile, *steps: int) -> list[str]:
        """Return the states of these steps without a fault; their lines are removed again."""
        self.learn(training, *steps)
        states = self.states
        self.store.delete_many([key(Checkpoints, NAME)])
        return states

    def figures(self, step: int) -> StepFigures:
        return StepFigures.from_bytes(self.store.get(key(StepFigures, NAME, name=step_name(step))))


@pytest.fixture
def lab(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Tests that use it ignore ResourceWarning: the SDK (0.38) never closes the connection of its configuration."""
    from tests.tinker_server.server import Sampled, tinker_server

    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with tinker_server(lambda *_: Sampled([1])) as server:
        lab = Lab(store, server)
        yield lab
        lab._open.close()
        gc.collect()  # while the test's filter holds
