"""Translation of samples and gradients between Tinker's protobuf (SDK 0.38) and skyrl's JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as wire

Json = dict[str, Any]
NUMBERS = {wire.DTYPE_FLOAT32: (np.float32, "float32"), wire.DTYPE_INT64: (np.int64, "int64")}


def read_forward_backward(body: bytes) -> tuple[str, bool, Json]:
    """Return the model id, whether it is forward only, and the input in JSON."""
    message = wire.ForwardBackwardRequest()
    message.ParseFromString(body)
    data = [
        {
            "model_input": {"chunks": [_read_chunk(chunk) for chunk in datum.model_input]},
            "loss_fn_inputs": {name: _read_tensor(value) for name, value in datum.loss_fn_inputs.items()},
        }
        for datum in message.data
    ]
    config = dict(message.loss_fn_config) or None
    return message.model_id, message.forward_only, {"data": data, "loss_fn": message.loss_fn, "loss_fn_config": config}


def write_forward_backward(answer: Json) -> bytes:
    """Return the protobuf answer; its ``loss:sum`` adds up skyrl's losses per token."""
    message = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    outputs = answer["loss_fn_outputs"]
    record = message.loss_fn_outputs.add(num_datums=len(outputs))
    for name in outputs[0] if outputs else ():
        arrays = [np.asarray(output[name]["data"], np.float32) for output in outputs]
        record.fields[name].dtype = wire.DTYPE_FLOAT32
        record.fields[name].data = b"".join(array.tobytes() for array in arrays)
        record.fields[name].offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64).tobytes()
        if name == "elementwise_loss":
            message.metrics["loss:sum"] = float(sum(array.sum(dtype=np.float64) for array in arrays))
    return bytes(message.SerializeToString())


def write_samples(answer: Json) -> bytes:
    """Return the sampled sequences in protobuf."""
    message = wire.SampleResponse()
    for sequence in answer["sequences"]:
        stopped = sequence["stop_reason"] == "stop"
        message.sequences.add(
            stop_reason=wire.STOP_REASON_STOP if stopped else wire.STOP_REASON_LENGTH,
            tokens=np.asarray(sequence["tokens"], np.int32).tobytes(),
            logprobs=np.asarray(sequence["logprobs"], np.float32).tobytes(),
        )
    return bytes(message.SerializeToString())


def _read_chunk(chunk: Any) -> Json:
    return {"type": "encoded_text", "tokens": np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()}


def _read_tensor(tensor: Any) -> Json:
    kind, name = NUMBERS[tensor.dtype]
    return {"data": np.frombuffer(tensor.dense, kind).tolist(), "dtype": name, "shape": list(tensor.shape)}
