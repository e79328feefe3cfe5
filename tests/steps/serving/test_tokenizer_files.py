"""A tokenizer by an id of the hub: what is downloaded, what the cache is good for, and each refusal in one line.

The hub's client reads its environment when it is imported, so each try is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.paths import ROOT
from tests.steps.datasets.hub_server import Hub, Repo, serving
from tests.tinker_server.proxy import CALLER_KEY, running_proxy
from tests.tinker_server.server import KEY, Sampled, tinker_server

NAME, COMMIT = "test/model", "c" * 40
PROGRAM = """
import json, sys
from swe_argo.steps.errors import StepError
from swe_argo.steps.serving.tokenizer_files import find_tokenizer
try:
    told = {"files": sorted(each.name for each in find_tokenizer(sys.argv[1]).iterdir())}
except StepError as error:
    told = {"exit": error.exit_code, "reason": error.reason}
print(json.dumps(told))
"""


@pytest.fixture
def hub(model_files: Path) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in model_files.iterdir()} | {"model.safetensors": b"weights"}
    with serving(Hub({NAME: Repo({COMMIT: files}, {"main": COMMIT})})) as hub:
        yield hub


def environment(hub: Hub, cache: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    return inherited | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(cache), "PYTHONPATH": str(ROOT)} | more


def find(name: str, hub: Hub, cache: Path, **more: str) -> dict[str, object]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env=environment(hub, cache, **more),
        cwd=cache,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report: dict[str, object] = json.loads(result.stdout)
    return report


def test_download_excludes_weights(hub: Hub, tmp_path: Path) -> None:
    assert find(NAME, hub, tmp_path)["files"] == ["tokenizer.json", "tokenizer_config.json"]
    assert not any("safetensors" in request for request in hub.requests)


def test_folder_beats_hub_id(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    (tmp_path / NAME / "mine").touch()
    assert find(NAME, hub, tmp_path)["files"] == ["mine"]
    assert hub.requests == []


def test_cache_serves_without_the_hub(hub: Hub, tmp_path: Path) -> None:
    cached = find(NAME, hub, tmp_path)
    assert find(NAME, hub, tmp_path, HF_HUB_OFFLINE="1") == cached
    hub.refuses = "/api/"
    assert find(NAME, hub, tmp_path) == cached


def test_gated_model_needs_a_token(hub: Hub, tmp_path: Path) -> None:
    hub.repos[NAME].token = "hf_mine"
    report = find(NAME, hub, tmp_path)
    assert report["exit"] == 64
    assert report["reason"] == (
        f"--tokenizer: {NAME} on {hub.endpoint} is gated: request access on its page and set HF_TOKEN"
    )
    assert find(NAME, hub, tmp_path, HF_TOKEN="hf_mine")["files"] == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    ("name", "more", "code", "expected"),
    [
        ("a/b/c", {}, 64, "--tokenizer: a/b/c is neither a folder nor a hub id (owner/name)"),
        ("acme/none", {}, 64, "--tokenizer: there is no folder acme/none, and http://"),
        (NAME, {"HF_HUB_OFFLINE": "1"}, 64, "--tokenizer: HF_HUB_OFFLINE is set, but test/model is not in the cache"),
        (
            NAME,
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            75,
            "the tokenizer test/model cannot be downloaded from http://127.0",
        ),
    ],
)
def test_missing_tokenizer_is_one_line(
    *, hub: Hub, tmp_path: Path, name: str, more: dict[str, str], code: int, expected: str
) -> None:
    report = find(name, hub, tmp_path, **more)
    assert report["exit"] == code
    assert str(report["reason"]).startswith(expected)
    assert "\n" not in str(report["reason"])


def test_hub_failure_is_temporary(hub: Hub, tmp_path: Path) -> None:
    hub.refuses = "/resolve/"
    report = find(NAME, hub, tmp_path)
    assert report["exit"] == 75
    assert "403" in str(report["reason"])


def test_missing_tokenizer_is_refused(hub: Hub, tmp_path: Path) -> None:
    del hub.repos[NAME].commits[COMMIT]["tokenizer.json"]
    report = find(NAME, hub, tmp_path)
    assert report["exit"] == 64
    assert f"{NAME} on {hub.endpoint} has no tokenizer.json: " in str(report["reason"])


def test_proxy_serves_a_hub_tokenizer(
    hub: Hub, model_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(hub, tmp_path).items():
        monkeypatch.setenv(name, value)
    with (
        tinker_server(lambda *_: Sampled([258])) as server,
        running_proxy(server, model_files, tmp_path, f"--tokenizer={NAME}") as proxy,
    ):
        proxy.says("From the hub.")
        body = {"model": "tinker", "messages": [{"role": "user", "content": "Where from?"}]}
        headers = {"Authorization": f"Bearer {CALLER_KEY}"}
        answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "From the hub."


def test_tokenizer_is_the_base_models(hub: Hub, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "swe_argo.steps.proxy", "--base-model=acme/unheard", "--port=0"],
        env=environment(hub, tmp_path, TINKER_API_KEY=KEY),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 64
    assert result.stderr.splitlines()[-1].startswith("--tokenizer: there is no folder acme/unheard")
