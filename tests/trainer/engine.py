"""The trainer's processes: skyrl's server and engine, with the bridge in front of them, and a tiny model for them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from tokenizers import Tokenizer

from tests.byte_model import make_model
from tests.tinker_server.server import serving
from tests.trainer.bridge import Bridge
from tests.trainer.home import TrainerHome
from tests.trainer.upstream import Upstream

NAME = "test/tiny"
CONTEXT = 2048
HIDDEN, INNER, LAYERS, HEADS, GROUPS, HEAD_SIZE = 64, 128, 2, 4, 2, 16
KEY = "tml-trainer"
START_TIMEOUT_S = 300
ADAPTERS, MAX_RANK, SAMPLED_TOGETHER = 16, 8, 16
SESSION_TIMEOUT_S = 180
"""Seconds until a killed client's adapter is freed; the SDK sends a heartbeat every 10 s."""


class NoTrainerError(Exception):
    """The trainer does not start on this machine; the reason in one line."""


@dataclass(frozen=True)
class RunningTrainer:
    """A trainer for Tinker's SDK at ``url`` with ``key``; ``model`` is the folder of the base model."""

    url: str
    model: Path
    bridge: Bridge
    log: Path
    base_model: str = NAME
    key: str = KEY

    @property
    def environment(self) -> dict[str, str]:
        return {"TINKER_BASE_URL": self.url, "TINKER_API_KEY": self.key, "TINKER_TELEMETRY": "0"}


@contextmanager
def running_trainer(home: TrainerHome, folder: Path) -> Iterator[RunningTrainer]:
    """Run a trainer with its files in ``folder``. Raises NoTrainerError with the end of its log."""
    model, log, port = make_tiny_model(folder / "model"), folder / "trainer.log", _free_port()
    with (
        log.open("wb") as output,
        subprocess.Popen(
            _command(model, folder, port),
            env=_environment(home),
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # server, engine and the two programs between them end together
        ) as process,
    ):
        try:
            upstream = f"http://127.0.0.1:{port}"
            _wait(process, upstream, model, log)
            bridge = Bridge(Upstream(upstream, str(model)), NAME, CONTEXT)
            with serving(bridge.app()) as url:
                yield RunningTrainer(url, model, bridge, log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _command(model: Path, folder: Path, port: int) -> list[str]:
    backend = {
        "max_lora_adapters": ADAPTERS, "max_lora_rank": MAX_RANK,
        "sample_max_num_sequences": SAMPLED_TOGETHER,  # one shape of a batch, so that its program is compiled once
    }  # fmt: skip
    options = {
        "base-model": model, "backend": "jax", "backend-config": json.dumps(backend), "host": "127.0.0.1", "port": port,
        "checkpoints-base": folder / "checkpoints", "database-url": f"sqlite:///{folder / 'trainer.db'}",
        "session-timeout-sec": SESSION_TIMEOUT_S, "session-cleanup-interval-sec": 30,
    }  # fmt: skip
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["uv", "run", "-m", "skyrl.tinker.api", *flags]


def _environment(home: TrainerHome) -> dict[str, str]:
    """Return the trainer's environment, with one thread: the model is too small for more."""
    paths = f"{home.programs}{os.pathsep}{os.environ.get('PATH', '')}"
    return os.environ | {
        "PATH": paths,
        "PYTHONPATH": str(home.modules),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(home.compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], url: str, model: Path, log: Path) -> None:
    """Wait until a token is sampled: the server answers long before its engine has loaded the model."""
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
    body = {"base_model": str(model), "prompt": prompt, "sampling_params": {"max_tokens": 1}}
    deadline, request_id = time.monotonic() + START_TIMEOUT_S, ""
    with httpx.Client(base_url=f"{url}/api/v1/", timeout=START_TIMEOUT_S, trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                request_id = request_id or client.post("asample", json=body).json()["request_id"]
                answer = client.post("retrieve_future", json={"request_id": request_id})
                if answer.status_code == httpx.codes.OK:
                    return
            time.sleep(0.2)
    lines = log.read_text(errors="replace").strip().splitlines() or ["it says nothing"]
    raise NoTrainerError(f"the trainer does not start: {lines[-1]}")


def make_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write a language model of a hundred thousand random parameters, in the files of a Qwen3.

    The embedding has exactly the tokens of the byte tokenizer, so that all samples can be decoded.
    """
    make_model(folder)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT}
    tokenizer["pad_token"] = "<|endoftext|>"  # transformers does not take it as an object here
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "head_dim": HEAD_SIZE, "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False, "dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    _write_safetensors(folder / "model.safetensors", _weights(vocabulary, np.random.default_rng(seed)))
    return folder


def _weights(vocabulary: int, random: np.random.Generator) -> dict[str, Any]:
    def matrix(rows: int, columns: int, deviation: float = 0.05) -> Any:
        return (deviation * random.standard_normal((rows, columns))).astype(np.float32)

    # An adapter leaves the last matrix as it is: where its rows are short, no hidden state prefers any token by much.
    head = matrix(vocabulary, HIDDEN, 0.15)
    weights = {"model.embed_tokens.weight": matrix(vocabulary, HIDDEN), "lm_head.weight": head}
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    for layer in range(LAYERS):
        parts = {
            "input_layernorm": np.ones(HIDDEN, np.float32),
            "post_attention_layernorm": np.ones(HIDDEN, np.float32),
            "self_attn.q_norm": np.ones(HEAD_SIZE, np.float32),
            "self_attn.k_norm": np.ones(HEAD_SIZE, np.float32),
            "self_attn.q_proj": matrix(HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.k_proj": matrix(GROUPS * HEAD_SIZE, HIDDEN),
            "self_attn.v_proj": matrix(GROUPS * HEAD_SIZE, HIDDEN),
            "self_attn.o_proj": matrix(HIDDEN, HEADS * HEAD_SIZE),
            "mlp.gate_proj": matrix(INNER, HIDDEN),
            "mlp.up_proj": matrix(INNER, HIDDEN),
            "mlp.down_proj": matrix(HIDDEN, INNER),
        }
        weights |= {f"model.layers.{layer}.{name}.weight": value for name, value in parts.items()}
    return weights


def _write_safetensors(path: Path, tensors: dict[str, Any]) -> None:
    """Write tensors in the format of huggingface/safetensors: header length, header in JSON, numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [place, place + value.nbytes]}
        place += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in tensors.values()))
