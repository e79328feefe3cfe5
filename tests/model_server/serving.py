"""The HTTP server, with its event loop in a thread.

It speaks OpenAI's chat completions and Responses, and Anthropic's messages. Scripts see requests as chat completions.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.model_server import anthropic_wire as anthropic
from tests.model_server import responses_wire as responses
from tests.model_server import wire
from tests.model_server.answers import Answer, Fault, Request, Script, error
from tests.model_server.wire import WireAnswer, prompt_ids, say
from tests.open_connections import OpenConnections

Headers = dict[str, str]


@dataclass(frozen=True)
class WireFormat:
    """A protocol on the wire. ``error`` and ``error_event`` take a status and a body."""

    as_chat: Callable[[Request], Request]
    whole: Callable[[WireAnswer], Any]
    events: Callable[[WireAnswer], Iterator[Any]]
    error: Callable[[int, Any], Any] = lambda _, body: body
    error_event: Callable[[int, Any], Any] = lambda _, body: body
    has_event_names: bool = True
    """Whether events have names, and no end mark."""

    def parts(self, reply: WireAnswer) -> list[bytes]:
        end = [] if self.has_event_names else [b"data: [DONE]\n\n"]
        return [self.part(event) for event in self.events(reply)] + end

    def part(self, event: Any) -> bytes:
        name = f"event: {event['type']}\n".encode() if self.has_event_names and isinstance(event, dict) else b""
        return name + b"data: " + json.dumps(event).encode() + b"\n\n"


FORMATS = {
    "chat": WireFormat(lambda request: request, wire.completion, wire.events, has_event_names=False),
    "responses": WireFormat(
        responses.as_chat,
        responses.response,
        responses.response_events,
        error_event=lambda _, body: responses.error_event(body),
    ),
    "anthropic": WireFormat(
        anthropic.as_chat, anthropic.message, anthropic.message_events, anthropic.error_body, anthropic.error_body
    ),
}
PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "anthropic"}
COUNT_TOKENS = "/v1/messages/count_tokens"


@dataclass
class Counts:
    """Totals of a server. ``requests`` are all requests for an answer; ``calls`` those answered whole, with 200."""

    requests: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    by_status: dict[str, int] = field(default_factory=dict)
    """Status, or kind of fault -> requests."""
    at_once: int = 0
    """Maximum of concurrent requests."""
    connections: int = 0
    began: list[float] = field(default_factory=list, repr=False)
    """Monotonic start times of the requests."""

    def billed(self, reply: WireAnswer) -> None:
        self.calls += 1
        if reply.answer.usage:
            self.prompt_tokens += reply.prompt_tokens
            self.cached_tokens += reply.answer.cached_tokens
            self.completion_tokens += reply.completion_tokens
            self.reasoning_tokens += reply.reasoning_tokens
            self.cost_usd += reply.answer.cost_usd or 0.0

    def ended(self, how: str) -> None:
        self.by_status[how] = self.by_status.get(how, 0) + 1


@dataclass
class ServedRequest:
    """A received request, and its answer."""

    body: Request
    headers: Headers
    response: Answer | Fault
    protocol: str = "chat"


class ModelServer:
    """A server that plays a script. ``url`` is the base_url of its clients."""

    def __init__(
        self,
        script: Script,
        *,
        key: str | None,
        models: tuple[str, ...],
        latency_s: float,
        keep: bool,
        protocols: tuple[str, ...] = tuple(FORMATS),
    ) -> None:
        self.script, self.key, self.models, self.latency_s = script, key, models, latency_s
        self.protocols = protocols
        self.counts = Counts()
        self.calls: list[ServedRequest] = []
        """All requests in order, if they are kept."""
        self.errors: list[str] = []
        """Tracebacks of the script's exceptions."""
        self.url = ""
        self._keep = keep
        self._now = 0
        self._lines = OpenConnections(self._line)

    async def start(self, host: str, port: int) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, host, port, limit=2**20, backlog=512)
        self.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
        return server

    async def stop(self, server: asyncio.Server) -> None:
        await self._lines.close(server)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts.connections += 1
        self._lines.take(reader, writer)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._served(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception:  # noqa: BLE001 - raised when the server is closed
            self.errors.append(traceback.format_exc())
        writer.close()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if path == "/counts":
            return await _send(writer, 200, vars(self.counts) | {"began": []})
        path = path.partition("?")[0]
        protocol = PATHS.get(path, "anthropic" if path == COUNT_TOKENS else "chat")
        form = FORMATS[protocol]
        key = headers.get("authorization", headers.get("x-api-key", "")).removeprefix("Bearer ")
        if self.key is not None and key != self.key:
            message = f"Incorrect API key provided: {key[:7]}{'*' * 8}{key[-4:]}. Find yours in your account."
            return await _fail(writer, form, error(401, message, "invalid_api_key", "invalid_request_error"))
        if (method, path) == ("GET", "/v1/models"):
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in self.models]
            return await _send(writer, 200, {"object": "list", "data": data})
        is_known = path in PATHS or path == COUNT_TOKENS
        if method != "POST" or not is_known or protocol not in self.protocols:
            unknown = error(404, f"Invalid URL ({method} {path})", None, "invalid_request_error")
            return await _fail(writer, form, unknown)
        if path == COUNT_TOKENS:
            return await _send(writer, 200, {"input_tokens": len(prompt_ids(form.as_chat(json.loads(body))))})
        self._now += 1
        self.counts.at_once = max(self.counts.at_once, self._now)
        try:
            return await self._answer(json.loads(body), headers, writer, protocol)
        finally:
            self._now -= 1

    async def _answer(self, native: Request, headers: Headers, writer: asyncio.StreamWriter, protocol: str) -> bool:
        counts, form = self.counts, FORMATS[protocol]
        counts.requests += 1
        counts.began.append(time.monotonic())
        number = counts.requests
        request = form.as_chat(native)
        response = self._chosen(request)
        if self._keep:
            self.calls.append(ServedRequest(native, headers, response, protocol))
        if self.latency_s or response.delay_s:
            await asyncio.sleep(self.latency_s + response.delay_s)
        about = {"x-request-id": f"req_{number}", **response.headers}
        if isinstance(response, Fault):
            counts.ended(str(response.status) if response.how == "error" else response.how)
            return await _fail(writer, form, response, about, say(response.answer, request, number))
        if writer.is_closing():
            counts.ended("gone")
            return False
        reply = say(response, request, number)
        counts.ended("200")
        counts.billed(reply)
        if request.get("stream"):
            return await _stream(writer, form.parts(reply), about)
        return await _send(writer, 200, form.whole(reply), about)

    def _chosen(self, request: Request) -> Answer | Fault:
        if self.models and request.get("model") not in self.models:
            name = request.get("model")
            return error(404, f"The model `{name}` does not exist.", "model_not_found", "invalid_request_error")
        try:
            return self.script(request)
        except Exception:  # noqa: BLE001 - raised when the server is closed
            self.errors.append(traceback.format_exc())
            return error(400, "the script failed")


async def _send(writer: asyncio.StreamWriter, status: int, body: Any, headers: Headers | None = None) -> bool:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    all_headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    writer.write(_head(status, all_headers) + data)
    await writer.drain()
    return True


async def _stream(writer: asyncio.StreamWriter, parts: list[bytes], headers: Headers, *, whole: bool = True) -> bool:
    all_headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers}
    writer.write(_head(200, all_headers) + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts))
    writer.write(b"0\r\n\r\n" if whole else b"")
    await writer.drain()
    return whole


async def _fail(
    writer: asyncio.StreamWriter,
    form: WireFormat,
    fault: Fault,
    headers: Headers | None = None,
    reply: WireAnswer | None = None,
) -> bool:
    if fault.how == "error" or reply is None:
        payload = form.error(fault.status, fault.body)
        return await _send(writer, fault.status, payload, {**(headers or {}), **fault.headers})
    if fault.how == "hang":
        await asyncio.sleep(3600)
    streams = reply.request.get("stream")
    parts = form.parts(reply) if form.has_event_names else form.parts(reply)[:-1]
    if fault.how == "drip":
        return await _drip(writer, parts[1:-1] if streams else [b" "])
    if fault.how == "stream_error" and streams:
        payload = form.part(form.error_event(fault.status, fault.body))
        return await _stream(writer, [*parts[: len(parts) // 2], payload], headers or {})
    if fault.how == "stream_error":
        return await _send(writer, fault.status, form.error(fault.status, fault.body), headers)
    if fault.how == "truncate" and streams:
        return await _stream(writer, parts[: len(parts) // 2], headers or {}, whole=False)
    if fault.how == "truncate":
        data = json.dumps(form.whole(reply)).encode()
        writer.write(_head(200, {"Content-Type": "application/json", "Content-Length": str(len(data))}))
        writer.write(data[: len(data) // 2])
        await writer.drain()
    return False


async def _drip(writer: asyncio.StreamWriter, parts: list[bytes]) -> bool:
    writer.write(_head(200, {"Content-Type": "text/event-stream" if len(parts) > 1 else "application/json"}))
    while not writer.is_closing():
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
    return False


def _head(status: int, headers: Headers) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode("latin-1")


@contextmanager
def model_server(
    script: Script,
    *,
    key: str | None = None,
    models: tuple[str, ...] = (),
    latency_s: float = 0.0,
    host: str = "127.0.0.1",
    port: int = 0,
    keep: bool = True,
    protocols: tuple[str, ...] = tuple(FORMATS),
) -> Iterator[ModelServer]:
    """Run a server. ``key``: the one that clients must send. ``models``: the known ones, by default any.

    Raises AssertionError on exit if the script raised.
    """
    server = ModelServer(script, key=key, models=models, latency_s=latency_s, keep=keep, protocols=protocols)
    loop = asyncio.new_event_loop()
    ready, end = threading.Event(), asyncio.Event()

    async def live() -> None:
        listening = await server.start(host, port)
        ready.set()
        await end.wait()
        await server.stop(listening)

    def run() -> None:
        try:
            loop.run_until_complete(live())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="model-server")
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        with suppress(RuntimeError):  # it could not listen, and has ended
            loop.call_soon_threadsafe(end.set)
        thread.join()
    if server.errors:
        raise AssertionError(f"the script failed:\n{server.errors[0]}")
