"""The egress proxy around a sandbox without a network: what passes, and what does not."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from swe_argo.steps.agents.gateway.binary import find_gateway
from swe_argo.steps.egress.relay import EgressProxy, EgressRecord, HostNetwork
from swe_argo.steps.egress.rules import AllowedHosts
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.http_server import Handler
from tests.steps.egress import ways_out

ADDRESSES = {
    "good.test": ["198.51.100.1", "8.8.8.8"],
    "a.wild.test": ["8.8.4.4"],
    "inner.test": ["169.254.169.254", "::1"],
    "bad.test": ["9.9.9.9"],
    "localhost": ["127.0.0.1"],
}
ALLOWED = AllowedHosts.parse(["good.test", "*.wild.test", "inner.test"])
BIG = bytes(range(256)) * (3 << 12)


class Upstream(Handler):
    """A server that records the host and path of each request."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str]] = []

    @override
    def respond(self) -> None:
        self.asked.append((str(self.headers.get("Host")), self.path))
        if self.path == "/redirect":
            self.answer(302, Location="http://bad.test/")
        else:
            self.answer(200, {"/big": BIG, "/echo": self.body()}.get(self.path, b"answer"))


class RecordingNetwork(HostNetwork):
    """A network with the names of ADDRESSES whose addresses all lead to the upstream servers."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports = ports
        self.resolved: list[str] = []
        self.connected: list[tuple[str, int]] = []

    @override
    async def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        return ADDRESSES[host]

    @override
    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append((address, port))
        if address == ADDRESSES["good.test"][0]:
            raise ConnectionRefusedError(address)
        return await asyncio.open_connection("127.0.0.1", self.ports[port])


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[int, int], bytes]]:
    """Yield the ports of a plain and a TLS server, by the port they stand for, and the certificate."""
    folder = tmp_path_factory.mktemp("upstream")
    names = "subjectAltName=DNS:good.test,DNS:a.wild.test"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=good.test", "-addext", names]
    subprocess.run(["openssl", *command, *files], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as plain,
        ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as tls,
    ):
        tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
        for server in (plain, tls):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield {80: plain.server_port, 443: tls.server_port}, (folder / "cert.pem").read_bytes()
        plain.shutdown()
        tls.shutdown()


class Guarded:
    """A sandbox without a network, and its egress proxy."""

    def __init__(self, box: Sandbox, proxy: EgressProxy, network: RecordingNetwork) -> None:
        self.box, self.proxy, self.network = box, proxy, network

    def run(self, command: str) -> str:
        """Run a command with the proxy's variables; return its output."""
        result = self.box.exec(command, timeout_s=120, env=self.proxy.variables, merge=True, cwd="/tmp")
        return result.stdout.decode(errors="replace").strip()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, upstream: tuple[dict[int, int], bytes]) -> Iterator[Guarded]:
    if reason := bubblewrap.probe():
        pytest.skip(str(reason))
    images = tmp_path_factory.mktemp("images")
    (images / "img" / "testbed").mkdir(parents=True)
    backend = LocalBackend(images, isolated=True)
    box = backend.create(SandboxRequest("egress", "img", 300, network=False))
    network = RecordingNetwork(upstream[0])
    box.write("/tmp/cert.pem", upstream[1])
    try:
        with EgressProxy(box, ALLOWED, find_gateway("amd64"), network) as proxy:
            yield Guarded(box, proxy, network)
    finally:
        backend.destroy(box)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("curl -sS --cacert cert.pem https://good.test/", "answer"),
        ("curl -sS --cacert cert.pem https://a.wild.test/", "answer"),
        ("curl -sS http://good.test/", "answer"),
        ("curl -sS --cacert cert.pem https://good.test/big | cksum", "cksum"),
        (
            "head -c 3000000 /dev/zero | curl -sS --cacert cert.pem --data-binary @- https://good.test/echo | wc -c",
            "3000000",
        ),
        ("for n in 1 2 3 4 5 6 7 8; do curl -sS http://good.test/ & done; wait", "answer" * 8),
        ("curl -sS http://bad.test/", "swe-argo egress proxy: bad.test:80 is not an allowed host"),
        ("curl -sS --cacert cert.pem https://bad.test/", "curl: (56) CONNECT tunnel failed, response 403"),
    ],
)
def test_egress_proxy_serves_allowed_hosts(guarded: Guarded, command: str, output: str) -> None:
    if not shutil.which("curl"):
        pytest.skip("needs curl")
    if output == "cksum":
        output = subprocess.run(["cksum"], input=BIG, capture_output=True, check=True).stdout.decode().strip()
    assert guarded.run(command) == output


def test_egress_proxy_closes_every_way_out(guarded: Guarded) -> None:
    guarded.box.write("/tmp/ways_out.py", Path(ways_out.__file__).read_bytes())
    asked, connected = len(Upstream.asked), len(guarded.network.connected)
    lines: list[list[Any]] = [json.loads(line) for line in guarded.run("python3 ways_out.py").splitlines()]
    assert [name for name, *_ in lines] == list(ways_out.WAYS)
    assert len(lines) >= 60
    passed = [name for name, got, _ in lines if "answer" in got or "302" in got]
    assert passed == ["a second request", "a redirect"]  # their first requests, which are allowed
    assert Upstream.asked[asked:] == [("good.test", "/"), ("good.test", "/redirect")]
    assert {address for address, _ in guarded.network.connected[connected:]} <= set(ADDRESSES["good.test"])
    assert set(guarded.network.resolved) <= {"good.test", "a.wild.test", "inner.test"}


def test_egress_proxy_records_what_was_asked(guarded: Guarded) -> None:
    guarded.run("curl -sS http://bad.test/; curl -sS http://bad.test/; curl -sS http://good.test/")
    records = guarded.proxy.records
    assert records[EgressRecord("bad.test", 80, "is not an allowed host")] >= 2
    assert records[EgressRecord("good.test", 80)] >= 1
