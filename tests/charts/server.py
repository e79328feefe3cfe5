"""A Kubernetes API server with nothing in it: discovery, which is what Helm asks before it renders."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}


def _answers(groups: tuple[str, ...]) -> dict[str, object]:
    found: dict[str, object] = {"/version": VERSION, "/api": {"kind": "APIVersions", "versions": ["v1"]}}
    listed = []
    for each in ("v1", *groups):
        resources = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": each, "resources": []}
        found["/api/v1" if each == "v1" else f"/apis/{each}"] = resources
    for each in groups:
        name, version = each.split("/")
        said = {"groupVersion": each, "version": version}
        listed.append({"name": name, "versions": [said], "preferredVersion": said})
    return found | {"/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}}


@contextlib.contextmanager
def api_server(folder: Path, *groups: str) -> Iterator[Path]:
    """A kubeconfig of a server that serves these API groups (``apps/v1``) and v1, and of neither any object."""
    answers = _answers(groups)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = json.dumps(answer or {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: it would be printed among the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield _kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def _kubeconfig(path: Path, url: str) -> Path:
    named = {"name": "one", "cluster": {"server": url}, "context": {"cluster": "one", "user": "one"}, "user": {}}
    lists = {"clusters": [named], "contexts": [named], "users": [named]}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "one", **lists}))
    path.chmod(0o600)
    return path
