"""Samplers of weights: their interface, and the change of the weights that answer without dropped calls."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from swe_argo.steps.errors import ConfigError

log = logging.getLogger(__name__)


ACCOUNT = (401, 402, 403)
"""Statuses that mean the key or the account of the sampling service: no retry helps."""


@dataclass(frozen=True)
class SamplingRequest:
    """A sampling call. ``stop``: texts or ids that end an answer; the two do not mix. ``top_k`` -1: no limit."""

    prompt: list[int]
    max_tokens: int
    stop: list[int] | list[str]
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None


@dataclass(frozen=True)
class SampledSequence:
    """An answer, exactly as it was sampled."""

    tokens: list[int]
    logprobs: list[float]
    at_limit: bool
    """Whether max_tokens ended it."""


class ApiError(Exception):
    """An error in place of an answer, in the format of OpenAI's errors: HTTP status, message and Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        retry_after_s: int | None = None,
        *,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_s, self.code, self.param = status, retry_after_s, code, param

    def body(self) -> dict[str, Any]:
        """Return the error as JSON."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class Sampler(Protocol):
    """Weights that can be sampled from, with any number of calls at a time."""

    async def sample(self, request: SamplingRequest) -> list[SampledSequence]:
        """Return ``request.n`` answers. Raises ApiError if the service refuses or fails."""


class SamplerSource(Protocol):
    """A source of samplers."""

    async def open(self, path: str | None) -> Sampler:
        """Return a sampler of the weights at ``path``, None for the base model. Raises ApiError if that fails."""

    async def context_length(self) -> int | None:
        """Return the most tokens of prompt and answer, None if unknown. Raises ApiError if that fails."""


class WeightsPointer(BaseModel):
    """The name of the weights to serve: a small JSON file in the store, or the body of ``POST /admin/weights``."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: str
    """The name of the weights in samples and answers."""
    sampler_path: str | None = None
    """``tinker://.../sampler_weights/...``; null: the base model."""


BASE = WeightsPointer(version="base")


@dataclass(frozen=True)
class OpenWeights:
    """Weights that answer. A call that began on them ends on them."""

    pointer: WeightsPointer
    sampler: Sampler


class ServedWeights:
    """The weights that new calls use. ``swaps`` counts the changes."""

    def __init__(self, source: SamplerSource) -> None:
        self._source = source
        self._current: OpenWeights | None = None
        self._swapping = asyncio.Lock()
        self.swaps = 0

    @property
    def current(self) -> OpenWeights:
        """The current weights; read them once per call. Raises ApiError while there are none."""
        if self._current is None:
            raise ApiError(503, "no weights are open yet", 1)
        return self._current

    async def swap(self, pointer: WeightsPointer) -> bool:
        """Open other weights, then use them for new calls; return False if they are already in use."""
        async with self._swapping:
            if self._current is not None and self._current.pointer == pointer:
                return False
            sampler = await self._source.open(pointer.sampler_path)
            self.swaps += self._current is not None
            self._current = OpenWeights(pointer, sampler)
            log.info("weights %s answer: %s", pointer.version, pointer.sampler_path or "the base model")
            return True


def read_pointer(data: bytes) -> WeightsPointer:
    """Parse a pointer. Raises ConfigError if it is not valid JSON of this form."""
    try:
        return WeightsPointer.model_validate(json.loads(data))
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"the pointer does not name weights: {error}", field="weights") from None
