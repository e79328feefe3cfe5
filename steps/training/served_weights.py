"""Which weights an endpoint answers with: a proxy that follows a training's pointer is some seconds behind it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable

from steps.contracts.failure import FailureClass
from steps.errors import InfraError

PAUSE_S = 1.0
PATIENCE_S = 900.0
"""Seconds in which weights have to be served: a service may take minutes to open them."""


def await_weights(
    url: str, version: str, is_over: Callable[[], bool] = lambda: False, *, patience_s: float = PATIENCE_S
) -> None:
    """Return when the proxy at this address answers with these weights, or ``is_over``. Raises InfraError after a time:
    it follows another training, or it cannot open them."""
    health = f"{url.rstrip('/').removesuffix('/v1')}/health"
    until, served = time.monotonic() + patience_s, "none"
    while not is_over():
        try:
            with urllib.request.urlopen(health, timeout=patience_s) as answer:  # noqa: S310 - an address that the spec names
                served = json.loads(answer.read())["weights"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            served = f"not known: {error}"
        if served == version:
            return
        if time.monotonic() > until:
            raise InfraError(FailureClass.MODEL, f"{url} does not serve weights {version}; what it serves is {served}")
        time.sleep(PAUSE_S)
