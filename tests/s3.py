"""A bucket behind moto's server: the real boto3 client talks to it over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from swe_argo.steps.settings import settings

Environ = dict[str, Any]
Habit = Callable[[Environ], tuple[str, str] | None]
"""Changes a request on its way to moto, or answers it: a status and the XML of the body."""


def ignores_conditions(environ: Environ) -> None:
    for name in _CONDITIONS:
        environ.pop(name, None)


def knows_no_conditions(environ: Environ) -> tuple[str, str] | None:
    return _error("501 No", "NotImplemented", "not here") if any(name in environ for name in _CONDITIONS) else None


def refuses_checksums(environ: Environ) -> tuple[str, str] | None:
    has_one = any(name.startswith(("HTTP_X_AMZ_CHECKSUM", "HTTP_X_AMZ_SDK_CHECKSUM")) for name in environ)
    return _error("400 No", "InvalidArgument", "x-amz-checksum header not supported") if has_one else None


def wants_md5(environ: Environ) -> tuple[str, str] | None:
    if not _is_delete(environ) or "HTTP_CONTENT_MD5" in environ:
        return None
    return _error("400 No", "MissingContentMD5", "Missing required header for this request: Content-MD5.")


def keeps_objects(environ: Environ) -> tuple[str, str] | None:
    error = "<Error><Key>x/a</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    return ("200 OK", f"<DeleteResult>{error}</DeleteResult>") if _is_delete(environ) else None


_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def _is_delete(environ: Environ) -> bool:
    return environ["REQUEST_METHOD"] == "POST" and "delete" in environ["QUERY_STRING"]


def _error(status: str, code: str, message: str) -> tuple[str, str]:
    return status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


@contextmanager
def moto(habit: Habit = lambda _environ: None) -> Iterator[str]:
    """Serve moto and yield its address; all servers of a process share their buckets. ``habit``: of another server."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    application, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ: Environ, start_response: Any) -> Any:
        if (own := habit(environ)) is not None:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(own[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(own[1])))])
            return [own[1].encode()]
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


@contextmanager
def odd_server(habit: Habit, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the bucket of the ``bucket`` fixture with the habit of another server."""
    with moto(habit) as address, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        settings.cache_clear()
        yield
    settings.cache_clear()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    about = {"ENDPOINT_URL": s3_endpoint, "DEFAULT_REGION": "us-east-1", "EC2_METADATA_DISABLED": "true"}
    for name, value in {**about, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    settings.cache_clear()
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    client.create_bucket(Bucket="runs-here")
    yield "runs-here"
    names = [{"Key": entry["Key"]} for entry in client.list_objects_v2(Bucket="runs-here").get("Contents", [])]
    if names:
        client.delete_objects(Bucket="runs-here", Delete={"Objects": names})  # type: ignore[typeddict-item]
    client.delete_bucket(Bucket="runs-here")
    settings.cache_clear()
