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

from swe_argo.steps.agents.resume import DivergedError
from swe_argo.steps.contracts.recorded_calls import RecordedCall, RecordedForward
from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.token_ids import count_common

FIELDS = ("prompt_token_ids", "completion_token_ids", "logprobs")
"""Fields of ``Metrics`` that are stored only in ``RecordedForward.tokens``."""
_MAX_NEWEST = 16
"""Number of recent calls to compare a prompt with: the maximum of concurrent calls, each in its own conversation."""


class TokenRecord:
    """Token ids of one attempt. Thread-safe."""

    def __init__(self, calls: Iterable[RecordedCall]) -> None:
        """Start with the record of earlier tries. ``calls``: their calls, with all calls that these refer to."""
        self._lock = threading.Lock()
        self._forwards = {
            call.forwarded.name: call.forwarded for call in calls if call.forwarded and call.forwarded.name
        }
        self._newest: OrderedDict[str, list[int]] = OrderedDict()

    def pack(self, metrics: Metrics) -> dict[str, Any]:
        """Return the fields of ``RecordedForward`` that hold a call's token ids; empty if the call has none."""
        prompt, *other_fields = (getattr(metrics, field) for field in FIELDS)
        if prompt is None and not any(other_fields):
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
            "tokens": json.dumps([rest, *other_fields], separators=(",", ":")).encode(),
        }

    def add(self, name: str, metrics: Metrics) -> None:
        """Register a recorded call, so that later ones can refer to it."""
        if name and metrics.prompt_token_ids is not None:
            with self._lock:
                self._newest[name] = [*metrics.prompt_token_ids, *(metrics.completion_token_ids or [])]
                if len(self._newest) > _MAX_NEWEST:
                    self._newest.popitem(last=False)

    def unpack(self, forward: RecordedForward) -> dict[str, Any]:
        """Return the complete ids by the names of the fields of ``Metrics``, validated by that class.

        Raises DivergedError if a call that it extends is missing.
        """
        if not forward.tokens:
            return {}
        prompt, *other_fields = json.loads(forward.tokens)
        if forward.extends:
            prompt = [*self._shared_ids(forward), *prompt]
        return Metrics(**dict(zip(FIELDS, (prompt, *other_fields), strict=True))).model_dump(include={*FIELDS})

    def _shared_ids(self, forward: RecordedForward) -> list[int]:
        """Return the ids that are stored with earlier calls."""
        # Goes back from call to call; a call's own tokens follow those that it shares with the one before.
        pieces, missing = [], forward.shared_ids
        while forward.extends:
            if (base := self._forwards.get(forward.extends)) is None:
                raise DivergedError("the recorded tokens of an answer are incomplete")
            prompt, completion, _ = json.loads(base.tokens)
            if missing > base.shared_ids:
                pieces.append([*prompt, *(completion or [])][: missing - base.shared_ids])
                missing = base.shared_ids
            forward = base
        return [token_id for piece in reversed(pieces) for token_id in piece]
