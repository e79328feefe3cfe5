"""Traces: the calls of each rollout as they were sampled, by any agent, in a file of JSON lines for each rollout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

from swe_argo.steps.serving.sampler import SampledSequence

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class Traces:
    """Files below ``folder``. Lines are appended whole, and flushed before a call is answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, prompt: list[int], sequence: SampledSequence, weights: str, finish: str) -> None:
        """Add a call of the rollout ``name``, which matches NAME."""
        line: dict[str, Any] = {
            "prompt_token_ids": prompt,
            "token_ids": sequence.tokens,
            "logprobs": sequence.logprobs,
            "weights": weights,
            "finish_reason": finish,
        }
        with self._path(name).open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    def read(self, name: str) -> bytes:
        """Return all calls of the rollout ``name`` so far. Raises FileNotFoundError if there are none."""
        return self._path(name).read_bytes()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"
