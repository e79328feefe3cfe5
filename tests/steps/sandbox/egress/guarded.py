"""A sandbox behind the egress proxy, and servers of this machine that stand for hosts of the internet."""

from __future__ import annotations

import asyncio
import ensurepip
import io
import json
import ssl
import subprocess
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from swe_argo.steps.sandbox.egress.relay import EgressKey, EgressProxy, HostNetwork
from swe_argo.steps.sandbox.egress.rules import AllowedHosts
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.http_server import Handler
from tests.steps.sandbox.egress import ways_out

ADDRESSES = {
    "good.test": ["198.51.100.1", "8.8.8.8"],
    "a.wild.test": ["8.8.4.4"],
    "inner.test": ["169.254.169.254", "::1"],
    "bad.test": ["9.9.9.9"],
    "localhost": ["127.0.0.1"],
}
ALLOWED = AllowedHosts.parse(["good.test", "*.wild.test", "inner.test"])
BIG = bytes(range(256)) * (3 << 12)
WHEEL = "sunny-1.0-py3-none-any.whl"


class Upstream(Handler):
    """A server that records the host and path of each request."""

    protocol_version = "HTTP/1.1"
    requests: list[tuple[str, str]] = []
    files: dict[str, bytes] = {}

    @override
    def respond(self) -> None:
        self.requests.append((str(self.headers.get("Host")), self.path))
        path = self.path.partition("?")[0]
        if path == "/redirect":
            self.answer(302, Location="http://bad.test/")
        elif path.startswith(("/repo.git/", "/simple/", "/files/")):
            content = self.files.get(path)
            self.answer(404 if content is None else 200, content or b"", Content_Type="text/html")
        else:
            self.answer(200, {"/big": BIG, "/echo": self.body()}.get(path, b"answer"))


class RecordingNetwork(HostNetwork):
    """A network with the names of ADDRESSES whose addresses all lead to the upstream servers."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports = ports
        self.resolved: list[str] = []
        self.connected: list[tuple[str, int]] = []

    @override
    async def resolve(self, host: str, port: int) -> list[str]:
        host.encode("idna")  # as getaddrinfo does
        self.resolved.append(host)
        return ADDRESSES[host]

    @override
    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append((address, port))
        if address == ADDRESSES["good.test"][0]:
            raise ConnectionRefusedError(address)
        return await asyncio.open_connection("127.0.0.1", self.ports[port])


@dataclass(frozen=True)
class Servers:
    """A plain and a TLS server. ``ports``: by the port they stand for; ``certificate``: of the second."""

    ports: dict[int, int]
    certificate: bytes


@contextmanager
def serve_upstream(folder: Path) -> Iterator[Servers]:
    """Serve answers, a git repository and a package index."""
    names = "subjectAltName=DNS:good.test,DNS:a.wild.test"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=good.test", "-addext", names]
    subprocess.run(["openssl", *command, *files], cwd=folder, check=True, capture_output=True)
    Upstream.files |= {**_repository(folder), **_package_index()}
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
        yield Servers({80: plain.server_port, 443: tls.server_port}, (folder / "cert.pem").read_bytes())
        plain.shutdown()
        tls.shutdown()


def _repository(folder: Path) -> dict[str, bytes]:
    """Return the files of a repository of one commit, as git reads them from a plain file server."""
    work, bare = folder / "work", folder / "repo.git"
    work.mkdir()
    (work / "hello.txt").write_text("hello\n")
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (
        ["init", "-q"],
        ["add", "."],
        [*identity, "commit", "-qm", "one"],
        ["clone", "-q", "--bare", ".", bare],
    ):
        subprocess.run(["git", *words], cwd=work, check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    files = (path for path in bare.rglob("*") if path.is_file())
    return {f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in files}


def _package_index() -> dict[str, bytes]:
    wheel, metadata = io.BytesIO(), "sunny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sunny.py", "SHINES = 42\n")
        archive.writestr(f"{metadata}/METADATA", "Metadata-Version: 2.1\nName: sunny\nVersion: 1.0\n")
        archive.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{metadata}/RECORD", "")
    page = f'<a href="/files/{WHEEL}">{WHEEL}</a>'
    return {"/simple/sunny/": page.encode(), f"/files/{WHEEL}": wheel.getvalue()}


class Guarded:
    """A sandbox without a network, and its egress proxy."""

    def __init__(self, box: Sandbox, proxy: EgressProxy, network: RecordingNetwork, counts: Counter[EgressKey]) -> None:
        self.box, self.proxy, self.network, self.counts = box, proxy, network, counts

    def run(self, command: str) -> str:
        """Run a command with the proxy's variables; return its output."""
        trust = dict.fromkeys(("CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"), "/tmp/cert.pem")
        env = self.proxy.variables | trust
        result = self.box.exec(command, timeout_s=300, env=env, merge=True, cwd="/tmp")
        return result.stdout.decode(errors="replace").strip()


@contextmanager
def guard(box: Sandbox, servers: Servers) -> Iterator[Guarded]:
    """Start the proxy of a sandbox without a network, with pip and the server's certificate in /tmp."""
    network, counts = RecordingNetwork(servers.ports), Counter[EgressKey]()
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    box.write("/tmp/pip.whl", pip.read_bytes())
    box.write("/tmp/cert.pem", servers.certificate)
    box.write("/tmp/ways_out.py", Path(ways_out.__file__).read_bytes())
    with EgressProxy(box, ALLOWED, counts, network) as proxy:
        yield Guarded(box, proxy, network, counts)


PIP = "python3 pip.whl/pip install -q --no-cache-dir --disable-pip-version-check --root-user-action ignore"
SUN = "PYTHONPATH=sun python3 -c 'import sunny; print(sunny.SHINES)'"
CLIENTS = {
    "curl -sS https://good.test/": "answer",
    "curl -sS https://a.wild.test/": "answer",
    "curl -sS http://good.test/": "answer",
    "curl -sS https://good.test/big | sha256sum | cut -c -7": "f6dd7fe",
    "head -c 3000000 /dev/zero | curl -sS --data-binary @- https://good.test/echo | wc -c": "3000000",
    "for n in 1 2 3 4 5 6 7 8; do curl -sS http://good.test/ & done; wait": "answer" * 8,
    "git clone -q https://good.test/repo.git clone && cat clone/hello.txt": "hello",
    f"{PIP} -t sun -i https://good.test/simple sunny && {SUN}": "42",
    "curl -sS http://bad.test/": "swe-argo egress proxy: bad.test:80 is not an allowed host",
    "curl -sS https://bad.test/": "curl: (56) CONNECT tunnel failed, response 403",
    "git clone -q https://bad.test/repo.git x 2>&1 | grep -o 'response 403'": "response 403",
    f"{PIP} --retries 0 -i https://bad.test/simple sunny 2>&1 | grep -o 'No matching'": "No matching",
}
"""Command in the sandbox -> its output."""
BY_NAME = "curl -sS --noproxy '*' https://good.test/ http://good.test/"
"""A command that does not know the proxy, whose output is ``answeranswer`` where the program may listen on port 53."""


def assert_no_way_out(guarded: Guarded) -> None:
    """Try all ways out, and check that only the allowed first requests reached a server."""
    earlier, connected = len(Upstream.requests), len(guarded.network.connected)
    lines: list[list[Any]] = [json.loads(line) for line in guarded.run("python3 ways_out.py").splitlines()]
    assert [name for name, *_ in lines] == list(ways_out.WAYS)
    assert len(lines) >= 60
    passed = [name for name, output, _ in lines if "answer" in output or "302" in output]
    assert passed == ["a second request", "a redirect"]  # their first requests, which are allowed
    assert sorted(Upstream.requests[earlier:]) == [("good.test", "/"), ("good.test", "/redirect")]
    assert {address for address, _ in guarded.network.connected[connected:]} <= set(ADDRESSES["good.test"])
    assert set(guarded.network.resolved) <= {"good.test", "a.wild.test", "inner.test"}
