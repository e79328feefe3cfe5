"""AWS for the scripts: moto's server; and what moto lacks of ECR, the calls that a cache is made of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

ACCOUNT = "123456789012"  # moto's
# What the clients read; no other credentials, profile or endpoint is theirs.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
}


class Caches(BaseHTTPRequestHandler):
    """Rules and templates of ECR's pull-through cache, in its protocol: JSON 1.1, the operation in a header."""

    rules: ClassVar[dict[str, dict[str, Any]]] = {}
    templates: ClassVar[dict[str, dict[str, Any]]] = {}

    def do_POST(self) -> None:
        wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].removeprefix("AmazonEC2ContainerRegistry_V20150921.")
        answer, error = self.act(operation, wish)
        body = json.dumps(answer).encode()
        self.send_response(400 if error else 200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def act(self, operation: str, wish: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        kind = "Template" if operation.endswith("RepositoryCreationTemplate") else "PullThroughCacheRule"
        held = self.templates if kind == "Template" else self.rules
        if operation == "DescribePullThroughCacheRules":
            return {"pullThroughCacheRules": [self.rules[name] for name in wish["ecrRepositoryPrefixes"]]}, False
        key = wish["prefix"] if kind == "Template" else wish["ecrRepositoryPrefix"]
        if operation.startswith("Create") == (key in held):
            missing = "NotFound" if operation.startswith("Update") else "AlreadyExists"
            return {"__type": f"{kind}{missing}Exception", "message": f"{key}: {missing}"}, True
        held[key] = held.get(key, {}) | wish
        return {**held[key], "registryId": ACCOUNT}, False

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def caches() -> Iterator[tuple[str, type[Caches]]]:
    """The address of a registry without caches, and what it then has."""
    handler = type("Caches", (Caches,), {"rules": {}, "templates": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()
