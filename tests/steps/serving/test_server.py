from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from tests.paths import ROOT
from tests.tinker_server.server import KEY, Sampled, tinker_server
from tests.workflows.command import wait_for


def test_listener_disables_nagle() -> None:
    from swe_argo.steps.host.listening import listen

    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()[:2]):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with pytest.raises(ConfigError, match=r"--port: .* cannot be listened on"):
            listen(*listening.getsockname()[:2])


@pytest.mark.parametrize(
    ("keys", "flags", "line"),
    [
        ({"TINKER_API_KEY": ""}, (), "TINKER_API_KEY: is not set"),
        (
            {"TINKER_API_KEY": "sk-other"},
            (),
            "TINKER_API_KEY: Tinker refused the key of the proxy: The api_key must start",
        ),
        ({}, ("--host=0.0.0.0",), "--host: host 0.0.0.0 is open to everyone on the network: set LLM_API_KEY to a key"),
        ({}, ("--pointer=a/b.json",), "--pointer: set --pointer and --store together"),
        ({}, ("--port=70000",), "--port: 70000 is not within 0 to 65,535"),
        ({}, ("--at-once=0",), "--at-once: 0 is not within 1 to 65,536"),
        ({}, ("--timeout=nan",), "--timeout: nan is not within 1.0 to 86,400.0"),
        ({}, ("--base-model=other/model",), "--base-model: Tinker has no model 'other/model'; it has test/model"),
        ({}, ("--weights=tinker://gone",), "--base-model: Tinker: Error code: 404"),
    ],
)
def test_invalid_flags_are_one_line(
    model_files: Path, tmp_path: Path, keys: dict[str, str], flags: tuple[str, ...], line: str
) -> None:
    with tinker_server(lambda *_: Sampled([258])) as server:
        server.missing.add("tinker://gone")
        environment = os.environ | {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": server.url, "LLM_API_KEY": ""} | keys
        command = [
            "-m",
            "swe_argo.steps.proxy",
            "--base-model=test/model",
            f"--tokenizer={model_files}",
            "--port=0",
            *flags,
        ]
        result = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": ""},
        )
    assert result.returncode == 64, result.stderr
    assert result.stderr.splitlines()[-1].startswith(line), result.stderr


def test_waiting_proxy_ends_on_sigterm(model_files: Path, tmp_path: Path) -> None:
    with tinker_server(lambda *_: Sampled([258])) as server:
        server.before = lambda _: 503
        keys = {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": server.url, "PYTHONPATH": str(ROOT), "TINKER_TELEMETRY": "0"}
        command = ["-m", "swe_argo.steps.proxy", "--base-model=test/model", f"--tokenizer={model_files}", "--port=0"]
        with subprocess.Popen(
            [sys.executable, *command], stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | keys
        ) as process:
            wait_for(lambda: server.requested)
            process.terminate()
            _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, errors
