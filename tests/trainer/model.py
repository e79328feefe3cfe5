"""A language model of a hundred thousand random parameters, in the files of a Qwen3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tests.byte_model import make_model

NAME = "test/tiny"
CONTEXT = 2048
HIDDEN, INNER, LAYERS, HEADS, GROUPS, HEAD_SIZE = 64, 128, 2, 4, 2, 16


def make_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write tokenizer, chat template, configuration and weights.

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
