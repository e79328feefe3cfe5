"""Token ids of a program's calls as they are kept: of each prompt only those that no earlier call has.

A prompt repeats its conversation: kept whole with every call, a record would grow with the square of the turns.
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
"""Of ``Metrics``, which stand in ``KeptForwarded.tokens`` alone."""
_NEWEST = 16
"""Calls that a prompt is compared with: as many as may be under way at a time, each in a conversation of its own."""


class TokenRecord:
    """Of one attempt. Several threads may use it."""

    def __init__(self, known: Iterable[KeptCall]) -> None:
        """``known``: the calls of earlier tries, with all to which they refer."""
        self._lock = threading.Lock()
        self._kept = {call.forwarded.name: call.forwarded for call in known if call.forwarded and call.forwarded.name}
        self._newest: OrderedDict[str, list[int]] = OrderedDict()

    def pack(self, metrics: Metrics) -> dict[str, Any]:
        """What is kept of a call's ids, by the names of ``KeptForwarded``; nothing where there are none."""
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
        """Let later calls refer to this one, which is kept now."""
        if name and metrics.prompt_token_ids is not None:
            with self._lock:
                self._newest[name] = [*metrics.prompt_token_ids, *(metrics.completion_token_ids or [])]
                if len(self._newest) > _NEWEST:
                    self._newest.popitem(last=False)

    def unpack(self, kept: KeptForwarded) -> dict[str, Any]:
        """Return the whole ids by the names of ``Metrics``, and checked like them.

        Raises DivergedError where a call that it extends is missing.
        """
        if not kept.tokens:
            return {}
        prompt, *others = json.loads(kept.tokens)
        if kept.extends:
            prompt = [*self._beginning(kept), *prompt]
        return Metrics(**dict(zip(FIELDS, (prompt, *others), strict=True))).model_dump(include={*FIELDS})

    def _beginning(self, kept: KeptForwarded) -> list[int]:
        """The ids that are kept with earlier calls."""
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
