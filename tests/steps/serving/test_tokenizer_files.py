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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    return kept | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(cache), "PYTHONPATH": str(ROOT)} | more


def find(name: str, hub: Hub, cache: Path, **more: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env=environment(hub, cache, **more),
        cwd=cache,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_its_files_are_downloaded_and_nothing_of_the_weights(hub: Hub, tmp_path: Path) -> None:
    assert find(NAME, hub, tmp_path)["files"] == ["tokenizer.json", "tokenizer_config.json"]
    assert not any("safetensors" in request for request in hub.requests)


def test_a_folder_of_that_name_wins(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    (tmp_path / NAME / "mine").touch()
    assert find(NAME, hub, tmp_path)["files"] == ["mine"]
    assert hub.requests == []


def test_what_was_downloaded_serves_where_the_hub_cannot_be_asked(hub: Hub, tmp_path: Path) -> None:
    cached = find(NAME, hub, tmp_path)
    assert find(NAME, hub, tmp_path, HF_HUB_OFFLINE="1") == cached
    hub.refuses = "/api/"
    assert find(NAME, hub, tmp_path) == cached


def test_a_gated_model_takes_the_token_of_who_may_read_it(hub: Hub, tmp_path: Path) -> None:
    hub.repos[NAME].token = "hf_mine"
    told = find(NAME, hub, tmp_path)
    assert told["exit"] == 64
    assert told["reason"] == (
        f"--tokenizer: {NAME} on {hub.endpoint} is gated: ask for access on its page and set HF_TOKEN"
    )
    assert find(NAME, hub, tmp_path, HF_TOKEN="hf_mine")["files"] == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    ("name", "more", "code", "said"),
    [
        ("a/b/c", {}, 64, "--tokenizer: a/b/c is neither a folder nor an id of the hub, owner/name"),
        ("acme/none", {}, 64, "--tokenizer: there is no folder acme/none, and no model of that id on http://"),
        (NAME, {"HF_HUB_OFFLINE": "1"}, 64, "--tokenizer: HF_HUB_OFFLINE is set, and test/model is not in the cache"),
        (NAME, {"HF_ENDPOINT": "http://127.0.0.1:9"}, 75, "the tokenizer test/model cannot be had from http://127.0"),
    ],
)
def test_what_cannot_be_had_is_refused_in_a_line(
    *, hub: Hub, tmp_path: Path, name: str, more: dict[str, str], code: int, said: str
) -> None:
    told = find(name, hub, tmp_path, **more)
    assert told["exit"] == code
    assert str(told["reason"]).startswith(said)
    assert "\n" not in str(told["reason"])


def test_a_hub_that_fails_is_not_the_persons_fault(hub: Hub, tmp_path: Path) -> None:
    hub.refuses = "/resolve/"
    told = find(NAME, hub, tmp_path)
    assert told["exit"] == 75
    assert "403" in str(told["reason"])


def test_a_model_without_these_files_is_refused_by_their_names(hub: Hub, tmp_path: Path) -> None:
    del hub.repos[NAME].commits[COMMIT]["tokenizer.json"]
    told = find(NAME, hub, tmp_path)
    assert told["exit"] == 64
    assert f"{NAME} on {hub.endpoint} has no tokenizer.json: " in str(told["reason"])


def test_the_proxy_serves_by_a_tokenizer_of_the_hub(
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


def test_by_default_it_is_the_base_models_own(hub: Hub, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "swe_argo.steps.proxy", "--base-model=acme/unheard", "--port=0"],
        env=environment(hub, tmp_path, TINKER_API_KEY=KEY),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 64
    assert done.stderr.splitlines()[-1].startswith("--tokenizer: there is no folder acme/unheard")
