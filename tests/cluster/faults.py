"""A proxy between the real client and the real API server that breaks a share of what passes, by a seed."""

from __future__ import annotations

import asyncio
import copy
import random
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

from swe_argo.steps.kube.client import Cluster

LATENCY_S = 2.0
RETRY_AFTER_S = 1
_LINE = 1 << 20
_STATUS = b"\x03"
"""The channel of the exit code, first byte of a frame's payload (v5.channel.k8s.io)."""


class Kind(StrEnum):
    """What is asked of the API server."""

    EXEC = "exec"
    WATCH = "watch"
    PODS = "pods"
    OTHER = "other"


class Fault(StrEnum):
    """What becomes of a request. ``AFTER``: cut after some bytes of the answer; ``LATER``: after several answers of
    a shell that stays open; ``STATUS``: before the exit code."""

    REFUSE = "connection reset before anything was read"
    BEFORE = "dropped before it was forwarded"
    AFTER = "dropped in the answer"
    LATER = "dropped in one of the next answers"
    STATUS = "dropped before the exit code"
    BUSY = "429 with Retry-After"
    ERROR = "500"
    AWAY = "503"
    SLOW = "two seconds late"


# What share of the requests meets which fault.
EXEC_RATES = {
    Fault.REFUSE: 0.05,
    Fault.BEFORE: 0.06,
    Fault.AFTER: 0.07,
    Fault.LATER: 0.64,  # all others: a shell that stays open for good would meet no fault any more
    Fault.STATUS: 0.06,
    Fault.BUSY: 0.04,
    Fault.ERROR: 0.03,
    Fault.AWAY: 0.03,
    Fault.SLOW: 0.02,
}
POD_RATES = {
    Fault.REFUSE: 0.05,
    Fault.BEFORE: 0.05,
    Fault.AFTER: 0.1,
    Fault.BUSY: 0.05,
    Fault.ERROR: 0.05,
    Fault.AWAY: 0.05,
    Fault.SLOW: 0.05,
}
_ANSWERS = {Fault.BUSY: (429, "Too Many Requests"), Fault.ERROR: (500, "Internal Server Error")}
_ANSWERS[Fault.AWAY] = (503, "Service Unavailable")


class Faults:
    """Which request meets which fault: of each kind a seeded sequence, so a run can be done again."""

    def __init__(self, seed: int, rates: dict[Kind, dict[Fault, float]], *, cuts_late_shells: bool = False) -> None:
        """``cuts_late_shells``: what is late is cut in one of its next answers, too; no large file could pass so."""
        self.on = True
        self.cuts_late_shells = cuts_late_shells
        self.met: Counter[tuple[Kind, Fault]] = Counter()
        self.passed: Counter[Kind] = Counter()
        self.due: dict[Kind, list[Fault]] = {kind: [] for kind in Kind}
        """What the next requests of a kind meet in place of what is drawn."""
        self._rates = rates
        self._random = {kind: random.Random(f"{seed} {kind}") for kind in Kind}
        self._sizes = {kind: random.Random(f"{seed} {kind} sizes") for kind in Kind}

    def next(self, kind: Kind) -> Fault | None:
        """What becomes of the next request of this kind."""
        rates = self._rates.get(kind, {})
        drawn = self._random[kind].choices([*rates, None], [*rates.values(), max(0.0, 1 - sum(rates.values()))])[0]
        if self.on and self.due[kind]:
            drawn = self.due[kind].pop()
        if self.on and drawn:
            self.met[kind, drawn] += 1
            return drawn
        self.passed[kind] += 1
        return None

    def bytes_before(self, kind: Kind) -> int:
        """How much of an answer passes before it is cut; often nothing, for then least is known."""
        return self._sizes[kind].choice((0, 0, 5, 60, 2000))

    def bytes_later(self, kind: Kind) -> int:
        """How much passes before it is cut in one of the next answers."""
        return self._sizes[kind].randrange(200, 5000)

    def describe(self) -> str:
        """The counts in one line, for assertions."""
        lines = [f"{kind} {fault}: {count}" for (kind, fault), count in sorted(self.met.items())]
        return f"injected: {'; '.join(lines)}; passed: {dict(self.passed)}"


class Proxy:
    """Listens on this machine in plain HTTP for as long as the ``with`` lasts."""

    def __init__(self, upstream: Cluster, faults: Faults) -> None:
        self.faults = faults
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy")
        self._busy: set[asyncio.Task[None]] = set()
        where = urlsplit(upstream.configuration.host)
        self._host, self._port = where.hostname, where.port or 443
        self._tls = ssl.create_default_context(cafile=upstream.configuration.ssl_ca_cert)
        if upstream.configuration.cert_file:
            self._tls.load_cert_chain(upstream.configuration.cert_file, upstream.configuration.key_file)

    def __enter__(self) -> Proxy:
        self._thread.start()
        start = asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_LINE)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster as a client sees it through here, with the credentials it had."""
        configuration = copy.deepcopy(self._upstream.configuration)
        configuration.refresh_api_key_hook = None  # it would read the kubeconfig again, and its host with it
        configuration.host = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return Cluster(configuration, self._upstream.namespace, f"faulty {self._upstream.name}")

    def cut_lines(self) -> None:
        """All that passes now is cut: a shell that stays open may otherwise do so through a whole test."""

        def cut() -> None:
            for task in self._busy:
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    async def _end(self) -> None:
        self._server.close()
        await self._server.wait_closed()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        await asyncio.sleep(0.1)  # transports close in the loop's next turns

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._busy.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        kind = kind_of(head)
        fault = self.faults.next(kind)
        if fault in (Fault.REFUSE, Fault.BEFORE):
            return _cut(writer, reset=fault is Fault.REFUSE)
        if fault in _ANSWERS:
            writer.write(_answer(*_ANSWERS[fault]))
            return await writer.drain()
        if fault is Fault.SLOW:
            await asyncio.sleep(LATENCY_S)
        async with self._line() as (up_reader, up_writer):
            up_writer.write(head if kind is Kind.EXEC else _once(head))
            sending = asyncio.ensure_future(_pass(reader, up_writer))
            try:
                await self._answer(kind, fault, up_reader, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        return None

    async def _answer(
        self, kind: Kind, fault: Fault | None, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault is Fault.AFTER and kind is not Kind.EXEC:
            await up_reader.read(1)  # it was done; nobody hears of it
            return _cut(writer)
        writer.write(await up_reader.readuntil(b"\r\n\r\n"))
        is_late_shell = fault is Fault.SLOW and kind is Kind.EXEC and self.faults.cuts_late_shells
        if fault in (Fault.AFTER, Fault.LATER) or is_late_shell:
            remaining = self.faults.bytes_before(kind) if fault is Fault.AFTER else self.faults.bytes_later(kind)
            while remaining and (piece := await up_reader.read(remaining)):
                writer.write(piece)
                remaining -= len(piece)
            return _cut(writer)
        if fault is Fault.STATUS:
            async for frame, payload in _whole_frames(up_reader):
                if payload[:1] == _STATUS:
                    break
                writer.write(frame)
            return _cut(writer)
        return await _pass(up_reader, writer)

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_LINE)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


def kind_of(head: bytes) -> Kind:
    """What a request of that head asks for."""
    where = urlsplit(head.split(b" ", 2)[1].decode())
    if where.path.endswith("/exec"):
        return Kind.EXEC
    if "/pods" not in where.path:
        return Kind.OTHER
    return Kind.WATCH if parse_qs(where.query).get("watch", [""])[0] in {"true", "True", "1"} else Kind.PODS


async def _whole_frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield each frame of a websocket and its payload until the connection ends (RFC 6455, 5.2)."""
    while True:
        try:
            head = await reader.readexactly(2)
            length = head[1] & 0x7F
            if length >= 126:
                head += await reader.readexactly(2 if length == 126 else 8)
                length = int.from_bytes(head[2:], "big")
            payload = await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return
        yield head + payload, payload


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 18):
        writer.write(piece)
        await writer.drain()


def _once(head: bytes) -> bytes:
    """The request as the only one of its connection."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([lines[0], b"Connection: close", *lines[1:]])


def _answer(status: int, reason: str) -> bytes:
    body = f'{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","code":{status}}}'
    after = f"Retry-After: {RETRY_AFTER_S}\r\n" if status == 429 else ""
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nConnection: close\r\n{after}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def _cut(writer: asyncio.StreamWriter, *, reset: bool = False) -> None:
    if reset:
        line: socket.socket = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
