"""Models and saved weights with Tinker's guarantees, on a server that gives fewer."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from tests.trainer.upstream import RefusedError, Upstream

SAMPLING_ADAPTERS = 6
"""Maximum of saved weights that are open for sampling; idle ones are replaced."""
HEARTBEAT_S = 20.0
SESSION = {"tags": [], "sdk_version": "0.24.1"}


@dataclass(frozen=True)
class TrainedModel:
    """A trained adapter: its id upstream, its rank, and its session."""

    upstream_id: str
    rank: int
    session: str


@dataclass(frozen=True)
class SavedWeights:
    """Weights and the optimizer's state, by their path upstream."""

    upstream_path: str
    rank: int


@dataclass
class SamplingAdapter:
    """An adapter that only samples. ``path``: its name for sampling upstream."""

    upstream_id: str
    path: str
    busy: int = 0


@dataclass
class WeightsBook:
    """Map of the SDK's models and weights to those upstream.

    skyrl samples from a trained adapter by overwriting it with the saved weights, which would lose later steps. So
    weights are saved as a state, and sampled in an adapter of their own. Saved weights cannot be overwritten there:
    a name that is saved again gets a new one.
    """

    upstream: Upstream
    models: dict[str, TrainedModel] = field(default_factory=dict)
    states: dict[str, SavedWeights] = field(default_factory=dict)
    """``tinker://<model>/weights/<name>`` and ``.../sampler_weights/<name>``."""
    _adapters: OrderedDict[str, SamplingAdapter] = field(default_factory=OrderedDict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _session: str = ""
    _beating: asyncio.Task[None] | None = None

    async def create(self, model: str, session: str, rank: int, seed: int | None) -> None:
        upstream_id = await self._create(session, rank, seed)
        self.models[model] = TrainedModel(upstream_id, rank, session)
        fresh = await self.upstream.submit_and_wait("save_weights", model_id=upstream_id, path=self._name())
        await self._load(upstream_id, fresh["path"])

    async def create_from(self, model: str, session: str, path: str) -> None:
        state = self.state(path)
        upstream_id = await self._create(session, state.rank, None)
        self.models[model] = TrainedModel(upstream_id, state.rank, session)
        await self._load(upstream_id, state.upstream_path)

    def state(self, path: str) -> SavedWeights:
        if path not in self.states:
            raise RefusedError(404, f"there is nothing at {path}")
        return self.states[path]

    def model(self, name: str) -> TrainedModel:
        if name not in self.models:
            raise RefusedError(404, f"there is no model {name}")
        return self.models[name]

    async def begin_save(self, model: str, path: str, overwrite: bool) -> str:
        if path in self.states and not overwrite:
            raise RefusedError(409, f"{path} is there already")
        return await self.upstream.submit("save_weights", model_id=self.model(model).upstream_id, path=self._name())

    async def end_save(self, model: str, path: str, request_id: str) -> None:
        """Wait until the weights are saved, and register them. Raises FailedError."""
        saved = await self.upstream.result(request_id)
        self.states[path] = SavedWeights(saved["path"], self.models[model].rank)

    @asynccontextmanager
    async def sampling(self, path: str) -> AsyncIterator[str]:
        """Open weights for sampling; yield their name upstream."""
        async with self._opening:
            state = self.state(path)
            if state.upstream_path not in self._adapters:
                self._adapters[state.upstream_path] = await self._open(state)
            self._adapters.move_to_end(state.upstream_path)
            adapter = self._adapters[state.upstream_path]
            adapter.busy += 1
        try:
            yield adapter.path
        finally:
            adapter.busy -= 1

    async def end_session(self, session: str) -> None:
        for name in [name for name, model in self.models.items() if model.session == session]:
            await self.upstream.submit_and_wait("unload_model", model_id=self.models.pop(name).upstream_id)

    async def _keep_alive(self) -> None:
        """Send heartbeats for the sampling adapters, so that upstream does not end their session."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            with suppress(RefusedError, httpx.HTTPError):
                await self.upstream.post("session_heartbeat", session_id=self._session)

    async def _open(self, state: SavedWeights) -> SamplingAdapter:
        for path, adapter in list(self._adapters.items()):
            if len(self._adapters) < SAMPLING_ADAPTERS:
                break
            if not adapter.busy:
                await self.upstream.submit_and_wait("unload_model", model_id=adapter.upstream_id)
                del self._adapters[path]
        if not self._session:
            self._session = (await self.upstream.post("create_session", **SESSION))["session_id"]
            self._beating = asyncio.create_task(self._keep_alive())
        upstream_id = await self._create(self._session, state.rank, None)
        await self._load(upstream_id, state.upstream_path)
        saved = await self.upstream.submit_and_wait("save_weights_for_sampler", model_id=upstream_id, path=self._name())
        return SamplingAdapter(upstream_id, saved["path"])

    async def _create(self, session: str, rank: int, seed: int | None) -> str:
        fields = {"base_model": self.upstream.base_model, "lora_config": {"rank": rank, "seed": seed}}
        answer = await self.upstream.post("create_model", session_id=session, **fields)
        await self.upstream.result(str(answer["request_id"]))
        return str(answer["model_id"])

    async def _load(self, upstream_id: str, path: str) -> None:
        """Load weights. An empty optimizer step first removes gradients of an earlier use of the adapter."""
        nothing = {"learning_rate": 0.0}
        await self.upstream.submit_and_wait("optim_step", model_id=upstream_id, adam_params=nothing)
        await self.upstream.submit_and_wait("load_weights", model_id=upstream_id, path=path)

    def _name(self) -> str:
        return f"saved-{next(self._numbers)}"
