"""The proxy as a program: its flags and keys, how it stops, and the weights that a pointer names."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from swe_argo.steps import proxy as program
from swe_argo.steps.errors import EXIT_CONFIG, ConfigError
from swe_argo.steps.host.listening import listen
from swe_argo.steps.serving.weights import read_pointer
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.forked_program import run_program
from tests.paths import ROOT
from tests.steps.datasets.hub_server import Hub
from tests.steps.serving.conftest import HUB_ID, hub_environment
from tests.tinker_server.proxy import CALLER_KEY, running_proxy
from tests.tinker_server.server import KEY, Sampled, TinkerServer, tinker_server
from tests.workflows.command import wait_for


@pytest.fixture(scope="module")
def tinker() -> Iterator[TinkerServer]:
    with tinker_server(lambda *_: Sampled([258])) as server:
        server.missing.add("tinker://gone")
        yield server


def test_listener_disables_nagle() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()[:2]):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with pytest.raises(ConfigError, match=r"--port: .* cannot be listened on"):
            listen(*listening.getsockname()[:2])


# fmt: off
REFUSALS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {"TINKER_API_KEY": ""}, "TINKER_API_KEY: is not set"),
    ({}, {"TINKER_API_KEY": "sk-other"}, "TINKER_API_KEY: Tinker refused the key of the proxy: The api_key must start"),
    ({"host": "0.0.0.0"}, {}, "--host: host 0.0.0.0 is open to everyone on the network: set LLM_API_KEY to a key"),
    ({"pointer": "a/b.json"}, {}, "--pointer: set --pointer and --store together"),
    ({"port": 70000}, {}, "--port: 70000 is not within 0 to 65,535"),
    ({"at-once": 0}, {}, "--at-once: 0 is not within 1 to 65,536"),
    ({"timeout": float("nan")}, {}, "--timeout: nan is not within 1.0 to 86,400.0"),
    ({"base-model": "other/model"}, {}, "--base-model: Tinker has no model 'other/model'; it has test/model"),
    ({"weights": "tinker://gone"}, {}, "--base-model: Tinker: Error code: 404"),
    ({"tokenizer": None, "base-model": "acme"}, {}, "--tokenizer: acme is neither a folder nor a hub id (owner/name)"),
]
# fmt: on


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK never closes the connection of its configuration
@pytest.mark.parametrize("refusal", REFUSALS, ids=[line for *_, line in REFUSALS])
def test_invalid_flags_are_one_line(
    tinker: TinkerServer, model_files: Path, monkeypatch: pytest.MonkeyPatch, refusal: tuple[Any, dict[str, str], str]
) -> None:
    flags, keys, line = refusal
    environment = {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": tinker.url, "TINKER_TELEMETRY": "0", "LLM_API_KEY": ""}
    for name, value in (environment | {"OPENAI_API_KEY": ""} | keys).items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    chosen = {"base-model": "test/model", "tokenizer": str(model_files), "port": 0} | flags
    with pytest.raises(ConfigError) as failure:
        program.main({option.name: option.default for option in program.PROXY.options} | chosen)
    settings.cache_clear()
    assert str(failure.value).startswith(line)
    assert "\n" not in str(failure.value)


def start_proxy(tinker: TinkerServer, model_files: Path, folder: Path) -> subprocess.Popen[str]:
    keys = {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": tinker.url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
    command = ["-m", "swe_argo.steps.proxy", "--base-model=test/model", f"--tokenizer={model_files}", "--port=0"]
    return subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.PIPE, text=True, cwd=folder, env=os.environ | keys
    )


def test_missing_key_exits_with_64(tmp_path: Path) -> None:
    words = ["--base-model=test/model", f"--tokenizer={tmp_path}", "--port=0"]
    result = run_program("swe_argo.steps.proxy", words, tmp_path, os.environ | {"TINKER_API_KEY": ""})
    assert (result.returncode, result.stderr) == (EXIT_CONFIG, "TINKER_API_KEY: is not set\n")


def test_waiting_proxy_ends_on_sigterm(model_files: Path, tmp_path: Path) -> None:
    with tinker_server(lambda *_: Sampled([258])) as server:
        server.before = lambda _: 503
        with start_proxy(server, model_files, tmp_path) as process:
            wait_for(lambda: server.requested)
            process.terminate()
            _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, errors


POINTER = "training/one/weights.json"


def test_proxy_follows_the_pointer(
    tinker: TinkerServer, model_files: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokenizer is one of the hub's."""
    for name, value in hub_environment(hub, tmp_path / "hub").items():
        monkeypatch.setenv(name, value)
    store = open_store(str(tmp_path / "store"), create=True)

    def point(version: str) -> None:
        path = "" if version == "base" else f', "sampler_path": "tinker://{version}"'
        store.put(POINTER, f'{{"version": "{version}"{path}}}'.encode())

    point("one")
    flags = (f"--store={store.url}", f"--pointer={POINTER}", "--refresh=0.1", f"--tokenizer={HUB_ID}")
    with running_proxy(tinker, model_files, tmp_path, *flags) as proxy:

        def health() -> str:
            with urllib.request.urlopen(f"{proxy.root}/health", timeout=60) as answer:
                body = json.loads(answer.read())
            assert body["pointer"] == POINTER
            return str(body["weights"])

        errors = tmp_path / "stderr"
        assert health() == "one"
        point("two")
        wait_for(lambda: health() == "two")
        store.put(POINTER, b"{")
        wait_for(lambda: "does not name weights" in errors.read_text())
        assert health() == "two"
        point("base")
        wait_for(lambda: health() == "base")
        point("gone")
        wait_for(lambda: "there is nothing at tinker://gone" in errors.read_text())
        assert health() == "base"
        proxy.says("From the hub.")
        body = {"model": "tinker", "messages": [{"role": "user", "content": "Where from?"}]}
        headers = {"Authorization": f"Bearer {CALLER_KEY}"}
        answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "From the hub."


@pytest.mark.parametrize("data", [b"", b"[]", b'{"sampler_path": "x"}', b'{"version": "a", "other": 1}'])
def test_invalid_pointer_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="does not name weights"):
        read_pointer(data)
