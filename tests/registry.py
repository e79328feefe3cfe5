"""A container registry on this machine: as much of the distribution protocol as a pull uses, and its failures."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """What is served. ``failures`` are answered to the next requests for manifests, one each: status, code, message."""

    address: str = ""
    manifests: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The names of which a manifest was asked for, in order."""

    def add(self, name: str, layer: bytes, tag: str = "latest") -> str:
        """Serve ``<address>/<name>:<tag>`` as one tar archive; gives the manifest's digest."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        parts = [(CONFIG, json.dumps(config).encode()), (LAYER, gzip.compress(layer, 1, mtime=0))]
        descriptors = [{"mediaType": kind, "size": len(data), "digest": self._blob(data)} for kind, data in parts]
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptors[0], "layers": descriptors[1:]}
        manifest = json.dumps(body).encode()
        for reference in (tag, _digest(manifest)):
            self.manifests[f"{name}:{reference}"] = manifest
        return _digest(manifest)

    def _blob(self, data: bytes) -> str:
        self.blobs[_digest(data)] = data
        return _digest(data)


@contextmanager
def serve() -> Iterator[Registry]:
    """A registry on a free port of 127.0.0.1, which a Docker engine on this machine takes without TLS."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _, _, rest = self.path.partition("/v2/")
            name, kind, reference = _split(rest)
            if not rest:
                self._answer(200, b"{}", "application/json")
            elif kind == "manifests":
                registry.asked.append(name)
                if registry.failures:
                    status, code, message = registry.failures.pop(0)
                    self._answer(status, _errors(code, message), "application/json")
                elif manifest := registry.manifests.get(f"{name}:{reference}"):
                    self._answer(200, manifest, MANIFEST)
                else:
                    self._answer(404, _errors("MANIFEST_UNKNOWN", "manifest unknown"), "application/json")
            elif blob := registry.blobs.get(reference):
                self._answer(200, blob, "application/octet-stream")
            else:
                self._answer(404, _errors("BLOB_UNKNOWN", "blob unknown to registry"), "application/json")

        do_HEAD = do_GET

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _split(rest: str) -> tuple[str, str, str]:
    name, _, reference = rest.rpartition("/")
    name, _, kind = name.rpartition("/")
    return name, kind, reference


def _errors(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
