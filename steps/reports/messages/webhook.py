"""Client that posts one JSON message to a webhook. The address is a secret: no message of this module contains it.

Uses urllib: a single POST needs no connection pool, and urllib respects the proxy and certificates of the
environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from typing_extensions import override

from swe_argo.steps.models.backoff import retry_after_s

TRIES = 5
"""Maximum number of requests for one message."""
TIMEOUT_S = 10.0
LONGEST_WAIT_S = 60.0
"""Maximum length of one wait; a longer Retry-After is an error."""


@dataclass
class WebhookError(Exception):
    """Raised if the message was not accepted; ``reason`` is one clause without the address."""

    reason: str
    again: bool
    """Whether a retry may succeed."""
    wait_s: float | None = None
    """Seconds that the server asked to wait."""

    @override
    def __str__(self) -> str:
        return self.reason


def post(url: str, body: dict[str, Any], pause: Callable[[int], float] = lambda tries: float(2 ** (tries - 1))) -> None:
    """Post the message; retry 429, 5xx and connection errors after ``pause`` seconds or those of Retry-After.

    Raises WebhookError if the message is rejected, or the last try failed.
    """

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        requested_s = error.wait_s if isinstance(error, WebhookError) else None
        return pause(state.attempt_number) if requested_s is None else requested_s

    if not url.startswith(("https://", "http://")):
        raise WebhookError("its address does not begin with https://", again=False)
    data = json.dumps(body).encode()
    is_retried = retry_if_exception(lambda error: isinstance(error, WebhookError) and error.again)
    Retrying(retry=is_retried, wait=wait, stop=stop_after_attempt(TRIES), reraise=True)(_send, url, data)


def _opener() -> OpenerDirector:
    """Return an opener without redirects: a redirect would turn the POST into a GET and could lead anywhere."""
    opener = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    return opener


def _send(url: str, data: bytes) -> None:
    """Send one request. Raises WebhookError, which says whether a retry may succeed."""
    try:
        # the scheme is checked above
        request = Request(url, data, {"Content-Type": "application/json", "User-Agent": "swe-argo"})  # noqa: S310
        answer: HTTPResponse
        with _opener().open(request, timeout=TIMEOUT_S) as answer:
            answer.read()
    except HTTPError as error:
        with error:
            raise _http_error(error) from None
    except TimeoutError:
        raise WebhookError(f"it did not answer in {TIMEOUT_S:.0f} s", again=True) from None
    except URLError as error:
        why = error.reason
        reason = f"it did not answer in {TIMEOUT_S:.0f} s" if isinstance(why, TimeoutError) else _redact(why)
        raise WebhookError(reason, again=True) from None
    except (InvalidURL, ValueError):
        raise WebhookError("its address is malformed", again=False) from None
    except (OSError, HTTPException) as error:
        raise WebhookError(_redact(error), again=True) from None


def _redact(error: str | BaseException) -> str:
    """Return the error without texts that could contain the address."""
    words = getattr(error, "strerror", None)
    return f"no connection ({words or type(error).__name__})"


def _http_error(error: HTTPError) -> WebhookError:
    """Return the error for an HTTP status; other than 429 and 5xx, or a long wait, a retry makes no sense."""
    requested_s = retry_after_s({name.lower(): value for name, value in error.headers.items()})
    if error.code != 429 and error.code < 500:
        return WebhookError(f"it answered {error.code}", again=False)
    if requested_s is not None and requested_s > LONGEST_WAIT_S:
        return WebhookError(f"it answered {error.code} and asks to wait {requested_s:.0f} s", again=False)
    return WebhookError(f"it answered {error.code}", again=True, wait_s=requested_s)
