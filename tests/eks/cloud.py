"""AWS for the scripts: moto's server; and what moto lacks of ECR, the calls that a cache is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import boto3

from tests.http_server import Handler, serve

ACCOUNT, REGION = "123456789012", "eu-central-1"  # moto's
# What the clients read; no other credentials, profile or endpoint is theirs.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
}


def client(service: Any, endpoint: str) -> Any:
    """A client of a service at moto's server."""
    return boto3.client(
        service, endpoint_url=endpoint, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x"
    )


class Caches(Handler):
    """Rules and templates of ECR's pull-through cache, in its protocol: JSON 1.1, the operation in a header."""

    rules: ClassVar[dict[str, dict[str, Any]]] = {}
    templates: ClassVar[dict[str, dict[str, Any]]] = {}

    def respond(self) -> None:
        operation = self.headers["X-Amz-Target"].removeprefix("AmazonEC2ContainerRegistry_V20150921.")
        output, error = self.act(operation, json.loads(self.body()))
        self.answer(400 if error else 200, output, Content_Type="application/x-amz-json-1.1")

    def act(self, operation: str, spec: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        kind = "Template" if operation.endswith("RepositoryCreationTemplate") else "PullThroughCacheRule"
        stored = self.templates if kind == "Template" else self.rules
        if operation == "DescribePullThroughCacheRules":
            return {"pullThroughCacheRules": [self.rules[name] for name in spec["ecrRepositoryPrefixes"]]}, False
        key = spec["prefix"] if kind == "Template" else spec["ecrRepositoryPrefix"]
        if operation.startswith("Create") == (key in stored):
            missing = "NotFound" if operation.startswith("Update") else "AlreadyExists"
            return {"__type": f"{kind}{missing}Exception", "message": f"{key}: {missing}"}, True
        stored[key] = stored.get(key, {}) | spec
        return {**stored[key], "registryId": ACCOUNT}, False


@contextmanager
def caches() -> Iterator[tuple[str, type[Caches]]]:
    """The address of a registry without caches, and what it then has."""
    handler = type("Caches", (Caches,), {"rules": {}, "templates": {}})
    with serve(handler) as address:
        yield address, handler
