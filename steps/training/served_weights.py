"""Health check of the weights that an endpoint serves: a proxy is some seconds behind a training's pointer."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from swe_argo.steps.errors import ConfigError, InfraError

PAUSE_S = 1.0
PATIENCE_S = 900.0
"""Timeout in seconds: a service may take minutes to load the weights."""


def await_weights(
    url: str,
    training: str,
    version: str,
    is_over: Callable[[], bool] = lambda: False,
    *,
    patience_s: float = PATIENCE_S,
) -> None:
    """Return when the proxy at this address answers with these weights of a training, or ``is_over``.

    Raises ConfigError at once if it follows another training, InfraError after a timeout: it cannot load them.
    """
    health = f"{url.rstrip('/').removesuffix('/v1')}/health"
    until, served, told = time.monotonic() + patience_s, "none", False
    while not is_over():
        try:
            with urllib.request.urlopen(health, timeout=patience_s) as answer:  # noqa: S310 - an address in the spec
                said = json.loads(answer.read())
                served = said["weights"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            served = f"not known: {error}"
        else:
            if served == version:
                return
            _refuse_other(url, said, training, served)
        if time.monotonic() > until:
            raise InfraError(FailureClass.MODEL, f"{url} does not serve weights {version}; what it serves is {served}")
        if not told:
            sys.stderr.write(f"waiting until {url} serves weights {version}; what it serves is {served}\n")
            told = True
        time.sleep(PAUSE_S)


def _refuse_other(url: str, said: dict[str, Any], training: str, served: str) -> None:
    """Reject a proxy of another training; one of an older release does not report its pointer and may be right."""
    own = key(WeightsFile, training)
    if "pointer" in said and said["pointer"] != own:
        follows = (
            f"follows {said['pointer']}" if said["pointer"] else f"follows no training and serves weights {served}"
        )
        message = f"{url} {follows}; that of training {training!r} has to follow {own}"
        raise ConfigError(message, field="proxy_url")
