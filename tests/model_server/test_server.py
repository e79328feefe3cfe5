"""The server itself: what it plays and counts is what other tests believe."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.model_server import Answer, Call, by_text, call, every, flaky, function_text, model_server, play
from tests.model_server.answers import DRIP, DROP, FAULTS, HANG, rate_limited
from tests.model_server.wire import prompt_ids, say

ISSUE: list[Any] = [{"role": "user", "content": "Fix it."}]


def _client(url: str, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def test_play_takes_turn_from_messages() -> None:
    with (
        model_server(play(call("ls"), [rate_limited(), Answer("b")], Answer("c"))) as server,
        _client(server.url) as client,
    ):
        first = client.chat.completions.create(model="m", messages=ISSUE).choices[0].message
        later: list[Any] = [*ISSUE, {"role": "assistant", "content": "a"}]
        with pytest.raises(openai.RateLimitError) as limited:
            client.chat.completions.create(model="m", messages=later)
        second = client.chat.completions.create(model="m", messages=later).choices[0].message
        last = client.chat.completions.create(model="m", messages=[*later, *later, *later]).choices[0].message
    assert first.tool_calls
    assert (second.content, last.content) == ("b", "c")
    assert limited.value.response.headers["retry-after"] == "0"
    assert server.counts.by_status == {"200": 3, "429": 1}


def test_by_text_picks_script_per_issue() -> None:
    script = by_text({"issue one": play(Answer("1")), 'a "quoted" issue': play(Answer("2"))}, play(Answer("?")))
    with model_server(script) as server, _client(server.url) as client:
        answers = [
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            .choices[0]
            .message.content
            for text in ("this is issue one", 'and a "quoted" issue', "neither")
        ]
    assert answers == ["1", "2", "?"]


def test_counts_add_up_over_connections() -> None:
    def ask(number: int) -> int:
        issue: list[Any] = [{"role": "user", "content": f"n {number}"}]
        with pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(model="m", messages=issue)
        usage = client.chat.completions.create(model="m", messages=issue).usage
        return usage.total_tokens if usage else 0

    script = flaky(play(Answer("one two", reasoning="so")), DROP)
    with (
        model_server(script, latency_s=0.2) as server,
        _client(server.url) as client,
        ThreadPoolExecutor(16) as pool,
    ):
        totals = sum(pool.map(ask, range(32)))
    counts = server.counts
    assert (counts.requests, counts.calls) == (64, 32)
    assert counts.prompt_tokens + counts.completion_tokens == totals
    assert counts.reasoning_tokens == 32
    assert 1 < counts.at_once <= 16


def test_prompt_extends_previous_turn() -> None:
    request = {"model": "m", "messages": ISSUE}
    reply = say(Answer("I look.", calls=(Call("ls", {"a": 1}),)), request, 1)
    message = {"role": "assistant", "content": "I look.", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}]}  # fmt: skip
    after = prompt_ids({"model": "m", "messages": [*ISSUE, message, {"role": "tool", "content": "x"}]})
    assert after[: len(reply.prompt) + len(reply.completion)] == reply.prompt + reply.completion


def test_stop_words_and_limits_cut_answer() -> None:
    answer = function_text("ls", "I look.", path="/")
    with model_server(play(answer)) as server, _client(server.url) as client:
        stopped = client.chat.completions.create(model="m", messages=ISSUE, stop=["</function>"]).choices[0]
        cut = client.chat.completions.create(model="m", messages=ISSUE, max_tokens=2).choices[0]
    assert stopped.message.content == "I look.\n<function=ls>\n<parameter=path>/</parameter>\n"
    assert cut.finish_reason == "length"


@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name] not in (HANG, DRIP)])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_server_plays_every_fault(name: str, stream: bool) -> None:
    def answered(client: openai.OpenAI) -> Any:
        answer: Any = client.chat.completions.create(model="m", messages=ISSUE, stream=stream)
        return list(answer) if stream else answer

    fault = FAULTS[name]
    with model_server(play(fault)) as server, _client(server.url) as client:
        if isinstance(fault, Answer):
            answered(client)
        else:
            with pytest.raises(Exception, match=r".") as error:
                answered(client)
            assert isinstance(error.value, openai.APIError) or name == "truncated"  # that one is the HTTP client's
    assert server.counts.requests == 1
    assert server.counts.calls == (1 if isinstance(fault, Answer) else 0)


def test_server_closes_while_hanging() -> None:
    # Else it hangs for an hour: longer than any test may take.
    with (
        model_server(play(HANG)) as server,
        _client(server.url).with_options(timeout=0.2) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.chat.completions.create(model="m", messages=ISSUE)


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


def test_server_refuses_wrong_key_and_model() -> None:
    with model_server(play(Answer("x")), key="sk-right-key-0123", models=("m",)) as server:
        with (
            _client(server.url, "sk-wrong-key-4567") as client,
            pytest.raises(openai.AuthenticationError, match="sk-wron"),
        ):
            client.chat.completions.create(model="m", messages=ISSUE)
        with _client(server.url, "sk-right-key-0123") as client:
            assert [model.id for model in client.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model="n", messages=ISSUE)


def test_script_error_raises_on_close() -> None:
    def broken(request: dict[str, Any]) -> Answer:
        raise LookupError("nothing for turn 3")

    with (
        pytest.raises(AssertionError, match="nothing for turn 3"),
        model_server(broken) as server,
        _client(server.url) as client,
        pytest.raises(openai.BadRequestError),
    ):
        client.chat.completions.create(model="m", messages=ISSUE)


def test_every_fails_each_nth_request() -> None:
    with model_server(every(3, rate_limited(), play(Answer("x")))) as server, _client(server.url) as client:
        for number in range(1, 7):
            try:
                client.chat.completions.create(model="m", messages=ISSUE)
            except openai.RateLimitError:
                assert number % 3 == 0
    assert server.counts.by_status == {"200": 4, "429": 2}


def test_server_runs_as_program(tmp_path: Path) -> None:
    script = {
        "conversations": [
            {"when": "one", "play": [{"calls": [{"name": "ls", "arguments": {"a": 1}}]}, ["drop", {"text": "b"}]]}
        ],
        "otherwise": ["server_error"],
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    command = [sys.executable, "-m", "tests.model_server", "--script", str(tmp_path / "script.json"), "--key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            with _client(url) as client:
                first: list[Any] = [{"role": "user", "content": "one"}]
                assert client.chat.completions.create(model="m", messages=first).choices[0].message.tool_calls
                later: list[Any] = [*first, {"role": "assistant", "content": "x"}]
                with pytest.raises(openai.APIConnectionError):
                    client.chat.completions.create(model="m", messages=later)
                assert client.chat.completions.create(model="m", messages=later).choices[0].message.content == "b"
                with pytest.raises(openai.InternalServerError):
                    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "two"}])
            with urllib.request.urlopen(f"{url.removesuffix('/v1')}/counts") as answer:
                counts = json.load(answer)
        finally:
            server.terminate()
    assert (counts["requests"], counts["calls"]) == (4, 2)
    assert counts["by_status"] == {"200": 2, "drop": 1, "500": 1}
