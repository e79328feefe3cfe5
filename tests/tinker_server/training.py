"""The server's training: weights are a hash over all that they learnt, so that they can be compared."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tinker.proto import tinker_public_pb2 as wire

SHIFT = 0.125
"""Difference of the learner's log probabilities to those of the sampler."""
RL_KEYS = {"target_tokens", "logprobs", "advantages"}
LOSSES = {"importance_sampling", "ppo", "cispo"}
CLIPS = {"clip_low_threshold", "clip_high_threshold"}
MOST_RANK = 128
"""Maximum rank of an adapter."""
DTYPES: dict[int, np.dtype[Any]] = {wire.DTYPE_FLOAT32: np.dtype("<f4"), wire.DTYPE_INT64: np.dtype("<i8")}


@dataclass(frozen=True)
class ReceivedDatum:
    """A datum from the wire. All arrays have one length."""

    inputs: list[int]
    targets: list[int]
    logprobs: list[float]
    advantages: list[float]
    loss: str
    config: dict[str, float]

    @property
    def text(self) -> str:
        return json.dumps(vars(self), sort_keys=True)


class RefusedError(Exception):
    """A request that fails by the user's fault."""


@dataclass
class Model:
    """Weights in training. Requests are executed in the order of their numbers."""

    state: str
    gradient: list[ReceivedDatum] = field(default_factory=list)
    steps_done: int = 0
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)

    def submit(self, number: int, work: Callable[[], None]) -> None:
        self.waiting[number] = work
        while (next_work := self.waiting.pop(self.steps_done + 1, None)) is not None:
            self.steps_done += 1
            next_work()


Answer = dict[str, Any] | bytes
"""JSON, or a message of protobuf."""


@dataclass
class Trainer:
    """The models. ``states``: path -> saved weights. ``steps``: the datums of every optimizer step of any model."""

    states: dict[str | None, str] = field(default_factory=dict)
    ttls: dict[str | None, int | None] = field(default_factory=dict)
    steps: list[list[ReceivedDatum]] = field(default_factory=list)
    params: list[dict[str, float]] = field(default_factory=list)
    fail: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Route -> message and category of its next results."""
    lost: set[str] = field(default_factory=set)
    """Routes whose next result is lost (410), once each."""
    stuck: set[str] = field(default_factory=set)
    """Routes whose results never come."""
    _models: dict[str, Model] = field(default_factory=dict)
    _requests: dict[tuple[str, str, int], str] = field(default_factory=dict)
    _answers: dict[str, tuple[str, Answer]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def routes(self) -> dict[str, Callable[[Request], Any]]:
        return {
            "create_model": self._create_model,
            "load_weights": self._load_weights,
            "get_info": self._get_info,
            "forward_backward": self._forward_backward,
            "optim_step": self._optim_step,
            "save_weights": self._save_weights,
            "save_weights_for_sampler": self._save_weights,
        }

    def owns(self, request: str) -> bool:
        return request.startswith("train-")

    async def retrieve(self, request: str) -> Any:
        """Return the result of a request, or 408 before its turn."""
        if request not in self._answers or self._answers[request][0] in self.stuck:
            await asyncio.sleep(0.1)
            return JSONResponse({"type": "try_again", "request_id": request, "queue_state": "active"}, 408)
        route, answer = self._answers[request]
        if route in self.lost:
            self.lost.discard(route)
            return JSONResponse({"detail": "this promise is gone"}, 410)
        return Response(answer, media_type="application/x-protobuf") if isinstance(answer, bytes) else answer

    def _promise(self, route: str, model: str, number: int, work: Callable[[], Answer]) -> dict[str, str]:
        """Register a request; a repeated one is recognized by its number."""
        request_id = self._requests.get((route, model, number))
        if request_id:
            return {"request_id": request_id}
        name = self._requests[route, model, number] = f"train-{next(self._numbers)}"

        def do() -> None:
            try:
                if failures := self.fail.get(route):
                    answer: Answer = dict(zip(("error", "category"), failures.pop(0), strict=True))
                else:
                    answer = work()
            except RefusedError as error:
                answer = {"error": str(error), "category": "user"}
            self._answers[name] = route, answer

        if number and model in self._models:
            self._models[model].submit(number, do)
        else:
            do()
        return {"request_id": name}

    async def _create_model(self, request: Request) -> Any:
        body = await request.json()
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        lora = body["lora_config"]

        def work() -> Answer:
            if lora["rank"] > MOST_RANK:
                raise RefusedError(f"rank {lora['rank']} is more than {MOST_RANK}")
            self._models[name] = Model(f"{body['base_model']} rank {lora['rank']} seed {lora['seed']}")
            return {"type": "create_model", "model_id": name}

        return self._promise("create_model", name, 0, work)

    async def _load_weights(self, request: Request) -> Any:
        body = await request.json()
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        if body["path"] not in self.states:
            return JSONResponse({"detail": f"there is nothing at {body['path']}"}, 404)

        def work() -> Answer:
            fresh = "" if body["optimizer"] else " with a new optimizer"
            self._models[name] = Model(self.states[body["path"]] + fresh)
            return {"type": "load_weights", "path": body["path"], "model_id": name}

        return self._promise("load_weights", name, 0, work)

    async def _get_info(self, request: Request) -> Any:
        name = (await request.json())["model_id"]
        if name not in self._models:
            return JSONResponse({"detail": f"there is no model {name}"}, 404)
        return {"type": "get_info", "model_id": name, "model_data": {"model_name": "test/model"}, "is_lora": True}

    async def _forward_backward(self, request: Request) -> Any:
        message = wire.ForwardBackwardRequest()
        message.ParseFromString(await request.body())
        model = self._models[message.model_id]

        def work() -> Answer:
            datums = [_received(item, message) for item in message.data]
            model.gradient += datums
            return _output(datums)

        return self._promise("forward_backward", message.model_id, message.seq_id, work)

    async def _optim_step(self, request: Request) -> Any:
        body = await request.json()
        model = self._models[body["model_id"]]

        def work() -> Answer:
            texts = [datum.text for datum in model.gradient]
            learnt = json.dumps([model.state, texts, body["adam_params"]], sort_keys=True)
            model.state = hashlib.sha256(learnt.encode()).hexdigest()
            self.steps.append(model.gradient)
            self.params.append(body["adam_params"])
            model.gradient = []
            return {"metrics": {"grad_norm:mean": float(len(texts))}}

        return self._promise("optim_step", body["model_id"], body["seq_id"], work)

    async def _save_weights(self, request: Request) -> Any:
        body, route = await request.json(), request.url.path.rpartition("/")[2]
        folder = "weights" if route == "save_weights" else "sampler_weights"
        path = f"tinker://{body['model_id']}/{folder}/{body['path']}"
        is_repeated = (route, body["model_id"], body["seq_id"]) in self._requests
        if path in self.states and not is_repeated and not body.get("overwrite"):
            return JSONResponse({"detail": f"{path} is there already"}, 409)

        def work() -> Answer:
            self.states[path] = self._models[body["model_id"]].state
            self.ttls[path] = body.get("ttl_seconds")
            return {"type": route, "path": path}

        return self._promise(route, body["model_id"], body["seq_id"], work)


def _received(datum: Any, message: Any) -> ReceivedDatum:
    """Return a datum. Raises RefusedError if Tinker would refuse it."""
    if message.loss_fn not in LOSSES:
        raise RefusedError(f"there is no loss {message.loss_fn}")
    config = dict(message.loss_fn_config)
    if config and (message.loss_fn == "importance_sampling" or set(config) != CLIPS):
        raise RefusedError(f"{message.loss_fn} takes no {', '.join(config)}")
    arrays = {name: _array(tensor) for name, tensor in datum.loss_fn_inputs.items()}
    if set(arrays) != RL_KEYS:
        raise RefusedError(f"{message.loss_fn} takes {sorted(RL_KEYS)}, not {sorted(arrays)}")
    dtypes = {name: str(array.dtype) for name, array in arrays.items()}
    if dtypes != {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32"}:
        raise RefusedError(f"the inputs are of {dtypes}")
    (chunk,) = datum.model_input
    inputs = np.frombuffer(chunk.encoded_text.tokens, "<i4")
    if {len(array) for array in arrays.values()} != {len(inputs)}:
        raise RefusedError("the inputs are not of one length")
    if (inputs[1:] != arrays["target_tokens"][:-1]).any():
        raise RefusedError("the targets are not the inputs, shifted by one")
    targets, logprobs, advantages = (arrays[name].tolist() for name in ("target_tokens", "logprobs", "advantages"))
    return ReceivedDatum(inputs.tolist(), targets, logprobs, advantages, message.loss_fn, config)


def _array(tensor: Any) -> Any:
    return np.frombuffer(tensor.dense, DTYPES[tensor.dtype])


def _output(datums: list[ReceivedDatum]) -> bytes:
    """Return log probabilities of every datum, and the loss of importance sampling over all."""
    sizes = [len(datum.logprobs) for datum in datums]
    logprobs = np.concatenate([np.asarray(datum.logprobs, np.float32) - np.float32(SHIFT) for datum in datums])
    loss = -sum(float(np.exp(-SHIFT)) * sum(datum.advantages) for datum in datums)
    message = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics={"loss:sum": loss})
    field = message.loss_fn_outputs.add().fields["logprobs"]
    field.dtype = wire.DTYPE_FLOAT32
    field.data = logprobs.astype("<f4").tobytes()
    field.offsets = (4 * np.cumsum([0, *sizes])).astype("<i8").tobytes()
    return bytes(message.SerializeToString())
