"""The sampler interface: tokens -> tokens and their log probabilities, and the error if sampling fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

ACCOUNT = (401, 402, 403)
"""Statuses that mean the key or the account of the sampling service: no retry helps."""


@dataclass(frozen=True)
class SamplingRequest:
    """A sampling call.

    ``stop``: texts or ids that end an answer; ids and texts do not mix. ``n``: number of answers. ``top_k`` -1: no
    limit. ``seed`` None: random.
    """

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


class SamplingError(Exception):
    """A failed call: the HTTP status of the response, and the reason.

    ``retry_after_s``: seconds after which a retry may succeed; None: no such hint.
    """

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after_s = retry_after_s


class Sampler(Protocol):
    """Weights that can be sampled from, with any number of calls at a time."""

    async def sample(self, request: SamplingRequest) -> list[SampledSequence]:
        """Return ``request.n`` answers. Raises SamplingError if the service refuses or fails."""


class SamplerSource(Protocol):
    """A source of samplers."""

    async def open(self, path: str | None) -> Sampler:
        """Return a sampler of the weights at ``path``, None for the base model. Raises SamplingError if that fails."""

    async def context_length(self) -> int | None:
        """Return the most tokens of prompt and answer, None if unknown. Raises SamplingError if that fails."""
