"""A bucket behind moto's server: the real boto3 client talks to it over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from steps.settings import settings


@contextmanager
def moto() -> Iterator[str]:
    """The address of a moto server; those of one process hold the same things."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    application, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        with turn:  # S3 looks for a key and puts it in one step, moto in two
            return application(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A moto server: the real boto3 client talks to it over HTTP."""
    with moto() as address:
        yield address


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    client.create_bucket(Bucket="runs-here")
    yield "runs-here"
    names = [{"Key": entry["Key"]} for entry in client.list_objects_v2(Bucket="runs-here").get("Contents", [])]
    if names:
        client.delete_objects(Bucket="runs-here", Delete={"Objects": names})  # type: ignore[typeddict-item]
    client.delete_bucket(Bucket="runs-here")
    settings.cache_clear()
