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
"""Seconds between two checks."""
PATIENCE_S = 900.0
"""Timeout in seconds: a service may take minutes to load the weights."""


def await_weights(
    url: str,
    training: str,
    version: str,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    timeout_s: float = PATIENCE_S,
) -> None:
    """Return when the proxy at ``url`` answers with the weights ``version`` of a training, or when ``should_stop()``.

    Raises ConfigError at once if the proxy follows another training, InfraError if it does not serve the weights within
    ``timeout_s`` seconds.
    """
    health = f"{url.rstrip('/').removesuffix('/v1')}/health"
    until, served, has_notified = time.monotonic() + timeout_s, "none", False
    while not should_stop():
        try:
            with urllib.request.urlopen(health, timeout=timeout_s) as answer:  # noqa: S310 - an address in the spec
                answer_fields = json.loads(answer.read())
                served = answer_fields["weights"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            served = f"not known: {error}"
        else:
            if served == version:
                return
            _refuse_other(url, answer_fields, training, served)
        if time.monotonic() > until:
            raise InfraError(FailureClass.MODEL, f"{url} does not serve weights {version}; it serves {served}")
        if not has_notified:
            sys.stderr.write(f"waiting until {url} serves weights {version}; it serves {served}\n")
            has_notified = True
        time.sleep(PAUSE_S)


def _refuse_other(url: str, answer_fields: dict[str, Any], training: str, served: str) -> None:
    """Raise ConfigError if the proxy follows another training.

    A proxy of an older release does not report its pointer; it may be the right one.
    """
    own = key(WeightsFile, training)
    if "pointer" in answer_fields and answer_fields["pointer"] != own:
        follows = (
            f"follows {answer_fields['pointer']}"
            if answer_fields["pointer"]
            else f"follows no training and serves weights {served}"
        )
        message = f"{url} {follows}; the proxy of training {training!r} must follow {own}"
        raise ConfigError(message, field="proxy_url")
