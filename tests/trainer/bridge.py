"""Tinker's wire protocol of SDK 0.38, in front of a server with that of 0.24 (skyrl 0.3.0)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as pb2

from tests.trainer.upstream import FailedError, RefusedError, Upstream
from tests.trainer.weights import WeightsBook

Json = dict[str, Any]
PROTOBUF = "application/x-protobuf"
NUMBERS = {pb2.DTYPE_FLOAT32: (np.float32, "float32"), pb2.DTYPE_INT64: (np.int64, "int64")}
POLL_S = 40.0
"""Seconds after which an unfinished request is answered with 408, like Tinker's, and polled again."""


class Bridge:
    """``model``: the SDK's name of the base model; ``context``: maximum tokens of prompt and answer."""

    def __init__(self, upstream: Upstream, model: str, context: int) -> None:
        self._upstream, self._model, self._context = upstream, model, context
        self.learnt: list[tuple[str, Json]] = []
        """Model id and JSON input of every forward_backward, in order."""
        self.shuffling: random.Random | None = None
        """If set, advantages are exchanged between the datums of a batch: a training with meaningless rewards."""
        self._book = WeightsBook(upstream)
        self._samplers: dict[str, str | None] = {}
        self._requests: dict[str, asyncio.Task[Response]] = {}
        self._numbers = itertools.count()

    def app(self) -> Starlette:
        routes: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "client/config": _constant({}),
            "client/dynamic_config": _constant({}),
            "telemetry": _constant({"status": "accepted"}),
            "get_server_capabilities": self._capabilities,
            "create_session": self._pass_on,
            "session_heartbeat": self._pass_on,
            "sessions/{session}/finish": self._finish,
            "create_model": self._create_model,
            "load_weights": self._load_weights,
            "get_info": self._info,
            "forward_backward": self._forward_backward,
            "optim_step": self._optim_step,
            "save_weights": self._save_weights,
            "save_weights_for_sampler": self._save_for_sampler,
            "create_sampling_session": self._create_sampling_session,
            "samplers/{sampler}": self._sampler,
            "asample": self._asample,
            "retrieve_future": self._retrieve,
        }
        return Starlette(
            routes=[Route(f"/api/v1/{path}", _answering(act), methods=["GET", "POST"]) for path, act in routes.items()]
        )

    async def _capabilities(self, _: Request) -> Json:
        return {"supported_models": [{"model_name": self._model, "max_context_length": self._context}]}

    async def _pass_on(self, request: Request) -> Json:
        return await self._upstream.post(request.url.path.rpartition("/")[2], **await request.json())

    async def _finish(self, request: Request) -> Json:
        await self._book.end_session(request.path_params["session"])
        return {}

    async def _create_model(self, request: Request) -> Json:
        body = await request.json()
        if body["base_model"] != self._model:
            raise RefusedError(400, f"there is no model {body['base_model']}, only {self._model}")
        name, lora = _model_name(body), body["lora_config"]
        work = self._book.create(name, body["session_id"], lora["rank"], lora.get("seed"))
        return self._promise(_then(work, {"type": "create_model", "model_id": name}), model_id=name)

    async def _load_weights(self, request: Request) -> Json:
        body = await request.json()
        if body.get("session_id") is None:
            raise RefusedError(400, "weights are loaded into a new model only")
        if not body["optimizer"]:
            raise RefusedError(400, "weights are loaded with the state of their optimizer only")
        name = _model_name(body)
        work = self._book.create_from(name, body["session_id"], body["path"])
        return self._promise(_then(work, {"type": "load_weights", "path": body["path"], "model_id": name}))

    async def _info(self, request: Request) -> Json:
        name = (await request.json())["model_id"]
        rank = self._book.model(name).rank
        return {"type": "get_info", "model_id": name, "is_lora": True, "lora_rank": rank, "model_name": self._model} | {
            "model_data": {"arch": "qwen3", "model_name": self._model, "tokenizer_id": self._model}
        }

    async def _forward_backward(self, request: Request) -> Json:
        name, content = read_forward_backward(await request.body())
        model_id = self._book.model(name).upstream_id
        self.learnt.append((name, content))
        if self.shuffling:
            content = content | {"data": shuffled(content["data"], self.shuffling)}
        request_id = await self._upstream.submit("forward_backward", model_id=model_id, forward_backward_input=content)
        return self._promise(_as_protobuf(self._upstream.result(request_id), write_forward_backward))

    async def _optim_step(self, request: Request) -> Json:
        body = await request.json()
        names = ("learning_rate", "beta1", "beta2", "eps", "weight_decay")
        adam = {name: value for name, value in body["adam_params"].items() if name in names}
        model_id = self._book.model(body["model_id"]).upstream_id
        request_id = await self._upstream.submit("optim_step", model_id=model_id, adam_params=adam)
        return self._promise(_as_json(self._upstream.result(request_id), {"type": "optim_step"}))

    async def _save_weights(self, request: Request) -> Json:
        body = await request.json()
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        return await self._save(body, path, {"type": "save_weights", "path": path}, bool(body.get("overwrite")))

    async def _save_for_sampler(self, request: Request) -> Json:
        body = await request.json()
        path = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
        return await self._save(body, path, {"type": "save_weights_for_sampler", "path": path})

    async def _save(self, body: Json, path: str, answer: Json, overwrite: bool = False) -> Json:
        request_id = await self._book.begin_save(body["model_id"], path, overwrite)
        return self._promise(_then(self._book.end_save(body["model_id"], path, request_id), answer))

    async def _create_sampling_session(self, request: Request) -> Json:
        body = await request.json()
        path = body.get("model_path")
        if path:
            self._book.state(path)
        elif body.get("base_model") != self._model:
            raise RefusedError(400, f"there is no model {body.get('base_model')}, only {self._model}")
        sampler = self._name("sampler")
        self._samplers[sampler] = path
        return {"type": "create_sampling_session", "sampling_session_id": sampler}

    async def _sampler(self, request: Request) -> Json:
        name = request.path_params["sampler"]
        return {"sampler_id": name, "base_model": self._model, "model_path": self._samplers.get(name)}

    async def _asample(self, request: Request) -> Json:
        body = await request.json()
        if body["sampling_session_id"] not in self._samplers:
            raise RefusedError(404, "there is no such sampler")
        path = self._samplers[body["sampling_session_id"]]
        fields = {name: body[name] for name in ("prompt", "sampling_params", "num_samples") if name in body}
        ids = [self._name("sequence") for _ in range(body.get("num_samples", 1))]
        return self._promise(_as_protobuf(self._sampled(path, fields), write_samples), sample_sequence_ids=ids)

    async def _sampled(self, path: str | None, fields: Json) -> Json:
        if path is None:
            return await self._upstream.submit_and_wait("asample", base_model=self._upstream.base_model, **fields)
        async with self._book.sampling(path) as upstream_path:
            return await self._upstream.submit_and_wait("asample", model_path=upstream_path, **fields)

    async def _retrieve(self, request: Request) -> Response:
        name = (await request.json())["request_id"]
        if name not in self._requests:
            raise RefusedError(410, f"there is no request {name}")
        ready, _ = await asyncio.wait([self._requests[name]], timeout=POLL_S)
        return self._requests[name].result() if ready else JSONResponse({"queue_state": "active"}, 408)

    def _promise(self, work: Coroutine[Any, Any, Response], **more: Any) -> Json:
        name = self._name("request")
        self._requests[name] = asyncio.create_task(_or_failure(work))
        return {"request_id": name, **more}

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"


def _constant(answer: Json) -> Callable[[Request], Awaitable[Json]]:
    async def route(_: Request) -> Json:
        return answer

    return route


def _model_name(body: Json) -> str:
    """Return the model's name; the SDK derives the same when it loads weights."""
    return f"{body['session_id']}:train:{body['model_seq_id']}"


async def _then(work: Coroutine[Any, Any, None], answer: Json) -> Response:
    await work
    return JSONResponse(answer)


async def _as_json(work: Coroutine[Any, Any, Json], more: Json) -> Response:
    answer = await work
    return JSONResponse({name: value for name, value in answer.items() if value is not None} | more)


async def _as_protobuf(work: Coroutine[Any, Any, Json], write: Callable[[Json], bytes]) -> Response:
    return Response(write(await work), media_type=PROTOBUF)


async def _or_failure(work: Coroutine[Any, Any, Response]) -> Response:
    """Return the answer; a failure is a 200 with the error and its category, like Tinker's."""
    try:
        return await work
    except RefusedError as error:
        return JSONResponse({"error": str(error), "category": "user"})
    except FailedError as error:
        return JSONResponse({"error": str(error), "category": error.category})
    except Exception as error:  # noqa: BLE001 - our bug: else the SDK would retry for minutes
        return JSONResponse({"error": f"the bridge is wrong: {error!r}", "category": "user"})


def _answering(handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        try:
            answer = await handler(request)
        except RefusedError as error:
            return JSONResponse({"detail": str(error)}, error.status)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return route


def read_forward_backward(body: bytes) -> tuple[str, Json]:
    """Return the model id, and the input in JSON."""
    message = pb2.ForwardBackwardRequest()
    message.ParseFromString(body)
    data = [
        {
            "model_input": {"chunks": [_read_chunk(chunk) for chunk in datum.model_input]},
            "loss_fn_inputs": {name: _read_tensor(value) for name, value in datum.loss_fn_inputs.items()},
        }
        for datum in message.data
    ]
    config = dict(message.loss_fn_config) or None
    return message.model_id, {"data": data, "loss_fn": message.loss_fn, "loss_fn_config": config}


def write_forward_backward(answer: Json) -> bytes:
    """Return the protobuf answer; its ``loss:sum`` adds up skyrl's losses per token."""
    message = pb2.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    outputs = answer["loss_fn_outputs"]
    record = message.loss_fn_outputs.add(num_datums=len(outputs))
    for name in outputs[0] if outputs else ():
        arrays = [np.asarray(output[name]["data"], np.float32) for output in outputs]
        record.fields[name].dtype = pb2.DTYPE_FLOAT32
        record.fields[name].data = b"".join(array.tobytes() for array in arrays)
        record.fields[name].offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64).tobytes()
        if name == "elementwise_loss":
            message.metrics["loss:sum"] = float(sum(array.sum(dtype=np.float64) for array in arrays))
    return bytes(message.SerializeToString())


def write_samples(answer: Json) -> bytes:
    message = pb2.SampleResponse()
    for sequence in answer["sequences"]:
        stopped = sequence["stop_reason"] == "stop"
        message.sequences.add(
            stop_reason=pb2.STOP_REASON_STOP if stopped else pb2.STOP_REASON_LENGTH,
            tokens=np.asarray(sequence["tokens"], np.int32).tobytes(),
            logprobs=np.asarray(sequence["logprobs"], np.float32).tobytes(),
        )
    return bytes(message.SerializeToString())


def _read_chunk(chunk: Any) -> Json:
    return {"type": "encoded_text", "tokens": np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()}


def _read_tensor(tensor: Any) -> Json:
    kind, name = NUMBERS[tensor.dtype]
    return {"data": np.frombuffer(tensor.dense, kind).tolist(), "dtype": name, "shape": list(tensor.shape)}


def shuffled(data: list[Json], chance: random.Random) -> list[Json]:
    """Exchange the advantages between the datums of a batch (JSON of the wire), on their sampled tokens.

    Sampled tokens are those with a log probability; a rollout has one advantage for all of them.
    """
    advantages = [_advantage(item["loss_fn_inputs"]) for item in data]
    chance.shuffle(advantages)
    return [_with_advantage(item, advantage) for item, advantage in zip(data, advantages, strict=True)]


def _advantage(inputs: Json) -> float:
    sampled = zip(inputs["advantages"]["data"], inputs["logprobs"]["data"], strict=True)
    return next((advantage for advantage, logprob in sampled if logprob), 0.0)


def _with_advantage(datum: Json, advantage: float) -> Json:
    inputs = datum["loss_fn_inputs"]
    values = [advantage if logprob else 0.0 for logprob in inputs["logprobs"]["data"]]
    return datum | {"loss_fn_inputs": inputs | {"advantages": inputs["advantages"] | {"data": values}}}
