"""The server itself, because other tests rely on its answers and counts."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.model_server import (
    Answer,
    ModelServer,
    Script,
    flaky,
    model_server,
    play,
)
from tests.model_server.answers import DRIP, DROP, FAULTS, HANG

ISSUE: list[Any] = [{"role": "user", "content": "Fix it."}]
LATER: list[Any] = [*ISSUE, {"role": "assistant", "content": "a"}]


def open_client(url: str, key: str = "k", timeout: float = 60) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=timeout)


@contextmanager
def served(script: Script, **options: Any) -> Iterator[tuple[ModelServer, openai.OpenAI]]:
    with model_server(script, **options) as server, open_client(server.url, options.get("key") or "k") as client:
        yield server, client


def ask(client: openai.OpenAI, messages: list[Any] = ISSUE, **fields: Any) -> Any:
    return client.chat.completions.create(model="m", messages=messages, **fields)


def text_of(client: openai.OpenAI, messages: list[Any] = ISSUE) -> str:
    return str(ask(client, messages).choices[0].message.content)


def test_counts_add_up_over_connections() -> None:
    def tokens(number: int) -> int:
        issue: list[Any] = [{"role": "user", "content": f"n {number}"}]
        with pytest.raises(openai.APIConnectionError):
            ask(client, issue)
        return int(ask(client, issue).usage.total_tokens)

    script = flaky(play(Answer("one two", reasoning="so")), DROP)
    with served(script, latency_s=0.2) as (server, client), ThreadPoolExecutor(16) as pool:
        totals = sum(pool.map(tokens, range(32)))
    counts = server.counts
    assert (counts.requests, counts.calls, counts.reasoning_tokens) == (64, 32, 32)
    assert counts.prompt_tokens + counts.completion_tokens == totals
    assert 1 < counts.at_once <= 16


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_server_plays_every_fault(stream: bool) -> None:
    with served(play(Answer("x"))) as (server, client):
        for name, fault in FAULTS.items():
            if fault in (HANG, DRIP):
                continue
            server.script = play(fault)
            requests, calls = server.counts.requests, server.counts.calls
            # An answer that is cut off is an error of the HTTP client itself.
            kind = Exception if name == "truncated" else openai.APIError
            with nullcontext() if isinstance(fault, Answer) else pytest.raises(kind, match=r"."):
                list(ask(client, stream=stream))
            assert server.counts.requests == requests + 1, name
            assert server.counts.calls == calls + isinstance(fault, Answer), name


def test_server_close_ends_new_connections() -> None:
    body = json.dumps({"model": "m", "messages": ISSUE}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for data in [request, request[:9], b""] * 10:
            with ExitStack() as lines, model_server(play(HANG)) as server:
                port = int(server.url.rpartition(":")[2].removesuffix("/v1"))
                for _ in range(3):
                    lines.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(data)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_script_error_raises_on_close() -> None:
    def broken(request: dict[str, Any]) -> Answer:
        raise LookupError("nothing for turn 3")

    with (
        pytest.raises(AssertionError, match="nothing for turn 3"),
        served(broken) as (_, client),
        pytest.raises(openai.BadRequestError),
    ):
        ask(client)


def test_server_runs_as_program(tmp_path: Path) -> None:
    items: list[Any] = [{"calls": [{"name": "ls", "arguments": {"a": 1}}]}, ["drop", {"text": "b"}]]
    script = {"conversations": [{"when": "one", "play": items}], "otherwise": ["server_error"]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    command = [sys.executable, "-m", "tests.model_server", "--script", str(tmp_path / "script.json"), "--key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            with open_client(url) as client:
                first: list[Any] = [{"role": "user", "content": "one"}]
                assert ask(client, first).choices[0].message.tool_calls
                later: list[Any] = [*first, {"role": "assistant", "content": "x"}]
                with pytest.raises(openai.APIConnectionError):
                    ask(client, later)
                assert text_of(client, later) == "b"
                with pytest.raises(openai.InternalServerError):
                    ask(client, [{"role": "user", "content": "two"}])
            with urllib.request.urlopen(f"{url.removesuffix('/v1')}/counts") as answer:
                counts = json.load(answer)
        finally:
            server.terminate()
    assert (counts["requests"], counts["calls"]) == (4, 2)
    assert counts["by_status"] == {"200": 2, "drop": 1, "500": 1}
