"""One request and what comes of it: the openai library's client, with its own retries off."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steps.errors import ConfigError
from steps.models.answer import Answered, choice_of
from steps.models.endpoint import Endpoint
from steps.models.errors import Refusal
from steps.models.loading import load_openai
from steps.models.stream import Assembly, events
from steps.models.waits import told_wait_s

CONNECT_S = 30.0
"""For the connection alone, within the time of the call."""
BROKEN_OFF = ("abort", "error")
"""Finish reasons of answers that the endpoint did not bring to an end: vLLM's and SGLang's as they shut down,
OpenRouter's of a provider that failed."""
NO_KEY = "none"
"""What the library is told where there is no key; it is not sent."""


class RefusedError(Exception):
    """The endpoint answered with an error."""

    def __init__(self, refusal: Refusal, told_s: float | None = None) -> None:
        self.refusal, self.told_s = refusal, told_s

    def __str__(self) -> str:
        return f"{self.refusal.status}: {self.refusal.message}"


class DroppedError(Exception):
    """There was no whole answer: no connection, a dropped one, silence, a body cut off."""

    def __init__(self, what: str, *, sent: bool = True, silent: bool = False) -> None:
        self.sent = sent
        """Whether the request can have reached the endpoint."""
        self.silent = silent
        """Whether it was time that ended it."""
        super().__init__(what)


class EndlessError(Exception):
    """The time of the call was over while the model was still speaking."""


class Connection:
    """The library's client for one endpoint. Raises ConfigError for an address that it cannot read."""

    def __init__(self, where: Endpoint) -> None:
        openai = load_openai()
        key = where.key.get_secret_value() if where.key else ""
        self._openai = openai
        try:
            self._client = openai.OpenAI(base_url=where.url, api_key=key or NO_KEY, max_retries=0)
        except _address_errors() as error:
            raise ConfigError(f"{where.shown} is no address: {error}", field="llm.base_url") from None
        self._headers = {} if key else {"Authorization": openai.Omit()}

    def close(self) -> None:
        """Close what is open."""
        self._client.close()

    def models(self, timeout_s: float) -> list[str]:
        """The names that the endpoint knows, none where it does not tell."""
        try:
            return [
                str(model.id) for model in self._client.models.list(extra_headers=self._headers, timeout=timeout_s).data
            ]
        except (self._openai.OpenAIError, *_transport_errors(), ValueError, AttributeError, TypeError):
            return []

    def send(self, body: dict[str, Any], timeout_s: float) -> Answered:
        """One request, one whole answer. Raises RefusedError, DroppedError, EndlessError."""
        openai = self._openai
        began = time.monotonic()
        try:
            # The body bypasses the library's typed parameters, which it would convert one by one: 7 ms of CPU for a
            # conversation of 40 messages.
            with self._client.chat.completions.with_streaming_response.create(
                model=body["model"],
                messages=[],
                extra_headers=self._headers,
                extra_body=body,
                timeout=openai.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)),
            ) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                completion = _read(response, headers, began + timeout_s)
        except UnicodeEncodeError:
            if (clean := _encodable(body)) == body:  # it is a header, then: the library makes some of OPENAI_ORG_ID
                raise ConfigError("OPENAI_ORG_ID or OPENAI_PROJECT_ID holds what no header can carry") from None
            return self.send(clean, timeout_s)
        except openai.APIStatusError as error:
            headers = _headers(error)
            if (generated := _generated(error.body)) is None:
                raise RefusedError(Refusal.of(error.status_code, error.body), told_wait_s(headers)) from None
            completion = generated
        except openai.APITimeoutError as error:
            raise DroppedError(f"no answer within {timeout_s:g} s", sent=_sent(error), silent=True) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__
            raise DroppedError(f"{type(cause).__name__}: {cause}", sent=_sent(error)) from None
        except _transport_errors() as error:
            silent = "Timeout" in type(error).__name__
            what = f"no whole answer within {timeout_s:g} s" if silent else f"{type(error).__name__}: {error}"
            raise DroppedError(what, silent=silent) from None
        return Answered(completion, headers, time.monotonic() - began)


def _encodable(body: dict[str, Any]) -> dict[str, Any]:
    # Output of commands may hold bytes that are no text; they travel as lone surrogates, which UTF-8 does not have.
    clean: dict[str, Any] = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    return clean


def _generated(refusal: object) -> dict[str, Any] | None:
    """The answer within a refusal: Groq says 400 where its model made a call that it cannot read (tool_use_failed)."""
    if not isinstance(refusal, dict) or not isinstance(text := refusal.get("failed_generation"), str):
        return None
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def _headers(error: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in error.response.headers.items()}


def _sent(error: BaseException) -> bool:
    return not type(error.__cause__).__name__.startswith("Connect")


def _transport_errors() -> tuple[type[Exception], ...]:
    """What the library's HTTP client raises while a body is read."""
    return tuple(error for client in _http_clients() for error in (client.HTTPError, client.StreamError))


def _address_errors() -> tuple[type[Exception], ...]:
    """What it raises of an address that it cannot read."""
    return tuple(client.InvalidURL for client in _http_clients())


def _http_clients() -> list[Any]:
    """The modules of it: httpx for openai 2, httpx2 for openai 3."""
    return [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]


def _read(response: Any, headers: Mapping[str, str], until: float) -> dict[str, Any]:
    """The completion in a response, streamed or not. An error in it is an error, whatever its status."""
    if "event-stream" in headers.get("content-type", ""):
        body = _streamed(response.iter_lines(), until)
    else:
        body = _whole(response.iter_bytes(), until)
    error = body.get("error") or choice_of(body).get("error")
    said = choice_of(body).get("message")
    if error and not (isinstance(said, dict) and said.get("content")):
        status = error.get("code") if isinstance(error, dict) else None
        raise RefusedError(Refusal.of(_status(status), {"error": error}), told_wait_s(headers))
    if (finish := choice_of(body).get("finish_reason")) in BROKEN_OFF:
        raise DroppedError(f"the endpoint broke the answer off (finish reason {finish})")
    return body


def _status(code: object) -> int:
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _in_time(parts: Iterable[Any], until: float) -> Iterator[Any]:
    for part in parts:
        yield part
        if time.monotonic() > until:
            raise EndlessError


def _whole(parts: Iterable[bytes], until: float) -> dict[str, Any]:
    # Blanks, by which some proxies keep a line open, are no answer.
    data = bytearray()
    try:
        for part in _in_time(parts, until):
            data += part
    except EndlessError:
        raise DroppedError("no whole answer within the time of the call", silent=True) from None
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise DroppedError(f"the answer is no JSON: {bytes(data[:200])!r}") from None
    if not isinstance(body, dict):
        raise DroppedError(f"the answer is no JSON object: {bytes(data[:200])!r}")
    return body


def _streamed(lines: Iterable[str], until: float) -> dict[str, Any]:
    answer = Assembly()
    try:
        for data in events(_in_time(lines, until)):
            if (error := answer.add(data)) is not None:
                return error
    except EndlessError:
        if answer.begun:
            raise
        raise DroppedError("no answer within the time of the call", silent=True) from None
    except (ValueError, RecursionError):
        raise DroppedError("the stream is no JSON") from None
    except (AttributeError, KeyError, TypeError):  # JSON of another shape
        raise DroppedError("the stream is no chat completion") from None
    if not answer.done:
        raise DroppedError("the stream ended before the answer did")
    return answer.completion()
