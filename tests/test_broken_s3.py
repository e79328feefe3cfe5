from __future__ import annotations

import gc
import socket
import warnings
from contextlib import ExitStack

import pytest

from tests.broken_s3 import breakable


def test_what_passes_while_the_way_is_taken_down_is_closed_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", failed.append)
    with warnings.catch_warnings(record=True) as left, socket.create_server(("127.0.0.1", 0)) as server:
        warnings.simplefilter("always")
        for said in [b"GET / HTTP/1.1\r\n\r\n", b""] * 15:
            with ExitStack() as lines, breakable("127.0.0.1", 0, server.getsockname()) as way:
                port = int(way.url.rpartition(":")[2])
                for _ in range(3):
                    lines.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(said)
        gc.collect()
    assert [str(each.message) for each in left] == []
    assert failed == []
