from __future__ import annotations

import gc
import socket
import warnings
from contextlib import ExitStack

import pytest

from tests.broken_s3 import breakable


def test_broken_way_closes_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", failed.append)
    with warnings.catch_warnings(record=True) as caught, socket.create_server(("127.0.0.1", 0)) as server:
        warnings.simplefilter("always")
        for request in [b"GET / HTTP/1.1\r\n\r\n", b""] * 15:
            with ExitStack() as lines, breakable("127.0.0.1", 0, server.getsockname()) as way:
                port = int(way.url.rpartition(":")[2])
                for _ in range(3):
                    lines.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(request)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    assert failed == []
