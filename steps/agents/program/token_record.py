"""Storage of the token ids of a program's calls: of each prompt only the ids that no earlier call has.

A prompt repeats its conversation, so storing it whole would make the record grow with the square of the turns.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from swe_argo.steps.agents.going_on import DivergedError
from swe_argo.steps.contracts.kept_calls import KeptCall, KeptForwarded
from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.token_ids import count_common

FIELDS = ("prompt_token_ids", "completion_token_ids", "logprobs")
"""Fields of ``Metrics`` that are stored only in ``KeptForwarded.tokens``."""
_NEWEST = 16
"""Number of recent calls to compare a prompt with: the maximum of concurrent calls, each in its own conversation."""


class TokenRecord:
    """Token ids of one attempt. Thread-safe."""

    def __init__(self, known: Iterable[KeptCall]) -> None:
        """Start with the record of earlier tries. ``known``: their calls, with all calls that these refer to."""
        self._lock = threading.Lock()
        self._kept = {call.forwarded.name: call.forwarded for call in known if call.forwarded and call.forwarded.name}
        self._newest: OrderedDict[str, list[int]] = OrderedDict()

    def pack(self, metrics: Metrics) -> dict[str, Any]:
        """Return a call's ids as fields of ``KeptForwarded``; empty if there are none."""
        prompt, *others = (getattr(metrics, field) for field in FIELDS)
        if prompt is None and not any(others):
            return {}
        with self._lock:
            shared, base = max(
                ((count_common(ids, prompt or []), name) for name, ids in self._newest.items()), default=(0, "")
            )
        rest = None if prompt is None else prompt[shared:]
        return {
            "name": secrets.token_hex(8),
            "extends": base if shared else "",
            "shared_ids": shared,
            "tokens": json.dumps([rest, *others], separators=(",", ":")).encode(),
        }

    def add(self, name: str, metrics: Metrics) -> None:
        """Register a recorded call, so that later ones can refer to it."""
        if name and metrics.prompt_token_ids is not None:
            with self._lock:
                self._newest[name] = [*metrics.prompt_token_ids, *(metrics.completion_token_ids or [])]
                if len(self._newest) > _NEWEST:
                    self._newest.popitem(last=False)

    def unpack(self, kept: KeptForwarded) -> dict[str, Any]:
        """Return the complete ids by the names of ``Metrics``, validated like these.

        Raises DivergedError if a call that it extends is missing.
        """
        if not kept.tokens:
            return {}
        prompt, *others = json.loads(kept.tokens)
        if kept.extends:
            prompt = [*self._beginning(kept), *prompt]
        return Metrics(**dict(zip(FIELDS, (prompt, *others), strict=True))).model_dump(include={*FIELDS})

    def _beginning(self, kept: KeptForwarded) -> list[int]:
        """Return the ids that are stored with earlier calls."""
        pieces, wanted = [], kept.shared_ids
        while kept.extends:
            if (base := self._kept.get(kept.extends)) is None:
                raise DivergedError("the tokens of an answer are not whole")
            prompt, completion, _ = json.loads(base.tokens)
            if wanted > base.shared_ids:
                pieces.append([*prompt, *(completion or [])][: wanted - base.shared_ids])
                wanted = base.shared_ids
            kept = base
        return [each for piece in reversed(pieces) for each in piece]
