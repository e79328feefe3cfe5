"""An npm registry on this machine for the real client."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests import http_server


@dataclass
class NpmRegistry:
    """Served packages."""

    address: str = ""
    packages: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Name -> version -> package.json with its ``dist``."""
    archives: dict[str, bytes] = field(default_factory=dict)
    """Path -> archive."""

    def add(self, name: str, version: str, files: dict[str, str], **about: Any) -> None:
        """Serve a package; files that begin with ``#!`` are executable."""
        package = {"name": name, "version": version, **about}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for path, text in {"package.json": json.dumps(package), **files}.items():
                member = tarfile.TarInfo(f"package/{path}")
                member.size, member.mode = len(text), 0o755 if text.startswith("#!") else 0o644
                archive.addfile(member, io.BytesIO(text.encode()))
        place = f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        self.archives[place] = data.getvalue()
        integrity = base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
        dist = {"tarball": self.address + place, "integrity": f"sha512-{integrity}"}
        self.packages.setdefault(name, {})[version] = {**package, "dist": dist}


@contextmanager
def serve() -> Iterator[NpmRegistry]:
    """Serve on a free port of 127.0.0.1."""
    registry = NpmRegistry()

    class Handler(http_server.Handler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            self.body()
            path = unquote(self.path.partition("?")[0])
            versions = registry.packages.get(path[1:])
            if path in registry.archives:
                self.answer(200, registry.archives[path])
            elif versions:
                latest = {"latest": list(versions)[-1]}
                self.answer(200, {"name": path[1:], "dist-tags": latest, "versions": versions})
            else:
                self.answer(404, {"error": "not found"})

        do_GET = do_HEAD = do_POST = do_PUT = respond

    with http_server.serve(Handler) as address:
        registry.address = address
        yield registry
