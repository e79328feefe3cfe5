"""Sender for models without an endpoint, such as a training's sampler."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from swe_argo.steps.contracts.trajectory import StopReason, Usage
from swe_argo.steps.models.call import Answered
from swe_argo.steps.models.reply import Model, NoReplyError
from swe_argo.steps.models.request_body import RequestDialect
from swe_argo.steps.models.response_body import ModelResponse


class ModelSender:
    """Adapter of a ``Model`` to ``RequestSender``. Answers one request at a time, as a model has one conversation."""

    endpoint = ""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()

    @property
    def wire_model(self) -> str:
        """Return the name by which requests ask for the model."""
        return self._model.name or "model"

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls so far."""
        return self._model.usage

    @property
    def lost_s(self) -> float:
        """Return the lost seconds, see ``Model.lost_s``."""
        return self._model.lost_s

    def close(self) -> None:
        """Do nothing: the model's creator closes it."""

    def forward(
        self,
        request: dict[str, Any],
        dialect: RequestDialect,  # noqa: ARG002 - the training decides how to sample
        *,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
        timeout_s: float | None = None,
        was_accepted: bool = False,  # noqa: ARG002
    ) -> Answered:
        """Return the answer to a chat completion request. ``timeout_s`` includes the wait for earlier requests.

        Raises NoReplyError if that wait takes too long, and what ``Model.ask`` raises.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise NoReplyError(StopReason.CALL_TIMEOUT, "the agent's time ended before its turn")
        try:
            left_s = None if deadline is None else max(0.001, deadline - time.monotonic())
            reply = self._model.ask(request["messages"], tools=request.get("tools"), timeout_s=left_s)
        finally:
            self._lock.release()
        extra = reply.metrics.extra
        message = {"content": None} | reply.message
        ends = "tool_calls" if reply.calls else (extra and extra.finish_reason) or "stop"
        prompt, completion = reply.metrics.prompt_tokens or 0, reply.metrics.completion_tokens or 0
        body = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.wire_model,
            "choices": [{"index": 0, "message": message, "finish_reason": ends}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        }
        return Answered(ModelResponse(body, {}, extra.seconds if extra else 0.0), reply.metrics, reply)
