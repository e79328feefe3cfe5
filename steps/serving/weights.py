"""The weights that answer, and their change without dropped calls."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.serving.sampler import Sampler, SamplerSource, SamplingError
from swe_argo.steps.store import Store

log = logging.getLogger(__name__)


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
        """The current weights; read them once per call. Raises SamplingError while there are none."""
        if self._current is None:
            raise SamplingError(503, "no weights are open yet", 1)
        return self._current

    async def swap(self, pointer: WeightsPointer) -> bool:
        """Open other weights, then use them for new calls; return False if they are already in use.

        Raises SamplingError if they cannot be opened; the weights then stay unchanged.
        """
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


async def follow(weights: ServedWeights, store: Store, key: str, every_s: float) -> None:
    """Read the pointer at ``key`` every ``every_s`` seconds, forever, and serve the weights that it names.

    Unreadable pointers and weights change nothing.
    """
    while True:
        try:
            data: Any = await asyncio.to_thread(store.get, key)
            await weights.swap(read_pointer(data))
        except FileNotFoundError:
            log.debug("no pointer exists at %s yet", key)
        except (InfraError, ConfigError, SamplingError) as error:
            log.warning("the weights are unchanged: %s", error)
        await asyncio.sleep(every_s)
