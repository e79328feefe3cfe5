"""A container registry on this machine: the distribution protocol of pulls and pushes, with failures."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from tests import http_server

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class Registry:
    """Served images. ``failures`` answer the next requests for manifests, one each: status, code, message."""

    address: str = ""
    manifests: dict[str, bytes] = field(default_factory=dict)
    """By ``name:tag`` and by ``name:digest``."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """By digest."""
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """The names of the requested manifests, in order."""

    def add(self, name: str, layer: bytes, tag: str = "latest") -> str:
        """Serve ``<address>/<name>:<tag>`` with one layer (tar); return the manifest's digest."""
        config: dict[str, Any] = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]}}
        config["rootfs"] = {"type": "layers", "diff_ids": [_digest(layer)]}
        parts = [(CONFIG, json.dumps(config).encode()), (LAYER, gzip.compress(layer, 1, mtime=0))]
        descriptors = [{"mediaType": kind, "size": len(data), "digest": self.put_blob(data)} for kind, data in parts]
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptors[0], "layers": descriptors[1:]}
        return self.put_manifest(name, tag, json.dumps(body).encode())

    def put_blob(self, data: bytes) -> str:
        """Store a blob and return its digest."""
        self.blobs[_digest(data)] = data
        return _digest(data)

    def put_manifest(self, name: str, tag: str, manifest: bytes) -> str:
        """Store a manifest by its tag and its digest; return the digest."""
        for reference in (tag, _digest(manifest)):
            self.manifests[f"{name}:{reference}"] = manifest
        return _digest(manifest)

    def config(self, reference: str) -> dict[str, Any]:
        """Return the image's configuration; all its layers must be stored."""
        manifest = json.loads(self.manifests[reference])
        missing = [layer["digest"] for layer in manifest["layers"] if layer["digest"] not in self.blobs]
        assert not missing, f"{reference} lacks layers {missing}"
        config: dict[str, Any] = json.loads(self.blobs[manifest["config"]["digest"]])
        return config


@contextmanager
def serve() -> Iterator[Registry]:
    """Serve on a free port of 127.0.0.1, which a Docker engine on this machine accepts without TLS."""
    registry = Registry()
    uploads: dict[str, bytes] = {}

    class Handler(http_server.Handler):
        protocol_version = "HTTP/1.1"
        # Who tries TLS first, as containerd does, is refused in plain HTTP, as by any registry, and then does without.
        default_request_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name, kind, reference = _split(self.path.removeprefix("/v2/"))
            if self.path == "/v2/":
                self._send(b"{}", "application/json")
            elif kind == "manifests":
                registry.requests.append(name)
                manifest = registry.manifests.get(f"{name}:{reference}")
                if registry.failures:
                    self._fail(*registry.failures.pop(0))
                elif manifest:
                    self._send(manifest, json.loads(manifest)["mediaType"])
                else:
                    self._fail(404, "MANIFEST_UNKNOWN", "manifest unknown")
            elif blob := registry.blobs.get(reference):
                self._send(blob, "application/octet-stream")
            else:
                self._fail(404, "BLOB_UNKNOWN", "blob unknown to registry")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            upload = f"{self.path.partition('?')[0]}{uuid4()}"
            uploads[upload] = b""
            self.answer(202, Location=f"{upload}?x=1", Docker_Upload_UUID="u", Range="0-0")

        def do_PATCH(self) -> None:
            upload = self.path.partition("?")[0]
            uploads[upload] += self.body()
            self.answer(202, Location=f"{upload}?x=1", Range=f"0-{max(len(uploads[upload]) - 1, 0)}")

        def do_PUT(self) -> None:
            path, _, query = self.path.partition("?")
            body = uploads.pop(path, b"") + self.body()
            digest = _digest(body)
            name, kind, tag = _split(path.removeprefix("/v2/"))
            if kind == "manifests":
                registry.put_manifest(name, tag, body)
            elif digest.removeprefix("sha256:") in query:
                registry.put_blob(body)
            else:
                return self.answer(400)
            return self.answer(201, Docker_Content_Digest=digest, Location=path)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return super().body()
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _send(self, body: bytes, kind: str) -> None:
            about = {"Docker_Distribution_Api_Version": "registry/2.0", "Docker_Content_Digest": _digest(body)}
            self.answer(200, body, Content_Type=kind, **about)

        def _fail(self, status: int, code: str, message: str) -> None:
            self.answer(status, {"errors": [{"code": code, "message": message}]})

    with http_server.serve(Handler) as address:
        registry.address = address.removeprefix("http://")
        yield registry


def _split(path: str) -> tuple[str, str, str]:
    name, _, reference = path.rpartition("/")
    name, _, kind = name.rpartition("/")
    return name, kind, reference


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
