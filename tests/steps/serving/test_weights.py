from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import tests.tinker_server  # noqa: F401 - skips where the extra tinker is not installed
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.serving.weights import read_pointer
from swe_argo.steps.store import open_store
from tests.tinker_server.proxy import ADMIN_KEY, CALLER_KEY, RunningProxy, running_proxy
from tests.tinker_server.server import Sampled, tinker_server
from tests.workflows.command import wait_for

POINTER = "training/one/weights.json"
HI: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def followed(model_files: Path, tmp_path: Path) -> Iterator[tuple[RunningProxy, Path]]:
    """A proxy that follows a pointer, and the file of it."""
    store = tmp_path / "store"
    open_store(str(store), create=True).put(POINTER, b'{"version": "one", "sampler_path": "tinker://one"}')
    flags = (f"--store={store}", f"--pointer={POINTER}", "--refresh=0.1")
    with (
        tinker_server(lambda *_: Sampled([258])) as server,
        running_proxy(server, model_files, tmp_path, *flags) as proxy,
    ):
        yield proxy, store


def health(proxy: RunningProxy) -> str:
    with urllib.request.urlopen(f"{proxy.root}/health", timeout=60) as answer:
        body = json.loads(answer.read())
    assert body["pointer"] == POINTER
    return str(body["weights"])


def test_proxy_follows_the_pointer(followed: tuple[RunningProxy, Path]) -> None:
    proxy, folder = followed
    store = open_store(str(folder))
    assert health(proxy) == "one"
    store.put(POINTER, b'{"version": "two", "sampler_path": "tinker://two"}')
    wait_for(lambda: health(proxy) == "two")
    store.put(POINTER, b"{")
    wait_for(lambda: "does not name weights" in (folder.parent / "stderr").read_text())
    assert health(proxy) == "two"
    store.put(POINTER, b'{"version": "base"}')
    wait_for(lambda: health(proxy) == "base")
    proxy.server.missing.add("tinker://gone")
    store.put(POINTER, b'{"version": "gone", "sampler_path": "tinker://gone"}')
    wait_for(lambda: "there is nothing at tinker://gone" in (folder.parent / "stderr").read_text())
    assert health(proxy) == "base"


def test_call_keeps_its_weights(followed: tuple[RunningProxy, Path]) -> None:
    proxy, _ = followed

    async def drive() -> list[tuple[str, str]]:
        async with (
            openai.AsyncOpenAI(base_url=proxy.url, api_key=CALLER_KEY, max_retries=0) as client,
            openai.AsyncOpenAI(base_url=proxy.url, api_key=ADMIN_KEY, max_retries=0) as admin,
        ):
            sampled = proxy.answer("slow", delay_s=1.0)
            proxy.server.answer = lambda *_: sampled
            slow = asyncio.create_task(client.chat.completions.create(model="tinker", messages=HI))
            while not proxy.server.submitted:
                await asyncio.sleep(0.01)
            proxy.says("quick")
            await admin.post(
                "../admin/weights", body={"version": "two", "sampler_path": "tinker://two"}, cast_to=object
            )
            completion = await slow
            return [(str(completion.choices[0].message.content), str(completion.system_fingerprint))]

    assert asyncio.run(drive()) == [("slow", "one")]
    assert proxy.server.calls[0].weights == "tinker://one"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"sampler_path": "x"}', b'{"version": "a", "other": 1}'])
def test_invalid_pointer_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="does not name weights"):
        read_pointer(data)
