"""The proxy's container as the chart makes it, begun as a process: Tinker, the hub and the bucket are servers here."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

import tests.tinker_server  # noqa: F401 - skips where the extra tinker is not installed
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from tests.byte_model import make_model
from tests.charts.chart import Rendered, render
from tests.charts.test_pipeline import data
from tests.charts.test_proxy import box
from tests.paths import ROOT
from tests.steps.datasets.hub_server import Hub, Repo, serving
from tests.tinker_server.server import KEY, Sampled, TinkerServer, tinker_server
from tests.workflows.command import wait_for

COMMIT = "d" * 40
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(frozen=True)
class Place:
    """The chart as it was rendered for the servers of this machine, and its proxy's address."""

    rendered: Rendered
    tinker: TinkerServer
    root: str

    @property
    def key(self) -> str:
        """What a run's pod shows: the Secret that the settings name."""
        name = data(self.rendered, "swe-argo-settings")["proxy-secret"]
        return base64.b64decode(self.rendered.one("Secret", name)["data"]["LLM_API_KEY"]).decode()

    def ask(self, api_key: str) -> httpx.Response:
        body = {"model": "tinker", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"Authorization": f"Bearer {api_key}"}
        return httpx.post(f"{self.root}/v1/chat/completions", json=body, headers=headers, timeout=120)


def environment(rendered: Rendered) -> dict[str, str]:
    """The container's variables, as kubelet would fill them in."""
    secrets = {"tinker-credentials": {"TINKER_API_KEY": KEY}, "s3-keys": KEYS}
    for item in rendered.all("Secret"):
        secrets[item["metadata"]["name"]] = {
            name: base64.b64decode(value).decode() for name, value in item.get("data", {}).items()
        }
    values = {
        name: value for item in box(rendered)["envFrom"] for name, value in secrets[item["secretRef"]["name"]].items()
    }
    for item in box(rendered)["env"]:
        reference = item.get("valueFrom", {}).get("secretKeyRef")
        if reference is None:
            values[item["name"]] = item["value"]
        elif reference["key"] in secrets[reference["name"]] or not reference.get("optional"):
            values[item["name"]] = secrets[reference["name"]][reference["key"]]
    return values


@contextmanager
def started(rendered: Rendered, folder: Path) -> Iterator[str]:
    """Its command at a free port of this machine alone, with what the image and the pod give it."""
    container = box(rendered)
    here = {"--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0"}
    command = [sys.executable, *container["command"][1:], *(here.get(arg, arg) for arg in container["args"])]
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HF_HOME": str(folder), "TINKER_TELEMETRY": "0"}
    whole = base | environment(rendered) | {"SWE_ARGO_REASON": str(folder / "reason"), "HOME": str(folder)}
    with subprocess.Popen(command, env=whole, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("the proxy listens at "), (folder / "reason").read_text()
            yield line.split()[-1].removesuffix("/v1")
        finally:
            process.kill()


@pytest.fixture
def place(bucket: str, s3_endpoint: str, tmp_path: Path) -> Iterator[Place]:
    files = {path.name: path.read_bytes() for path in make_model(tmp_path / "model").iterdir()}
    with ExitStack() as stack:
        tinker = stack.enter_context(tinker_server(lambda *_: Sampled([ord("h") - 33, 258])))
        hub = stack.enter_context(serving(Hub({"test/model": Repo({COMMIT: files}, {"main": COMMIT})})))
        rendered = render(
            *(f"aws.s3.bucket={bucket}", f"aws.s3.endpoint={s3_endpoint}", "aws.s3.existingSecret=s3-keys"),
            *("aws.s3.prefix=team", "image.repository=localhost/steps", f"hub.endpoint={hub.endpoint}"),
            *("proxy.enabled=true", "proxy.baseModel=test/model", f"proxy.tinkerURL={tinker.url}"),
            "proxy.refreshSeconds=1",
        )
        yield Place(rendered, tinker, stack.enter_context(started(rendered, tmp_path)))


def test_proxy_serves_new_weights(place: Place, bucket: str, s3_endpoint: str) -> None:
    probe = box(place.rendered)["startupProbe"]["httpGet"]["path"]
    assert httpx.get(f"{place.root}{probe}", timeout=60).status_code == 200
    assert place.ask("another").status_code == 401
    answer: Any = place.ask(place.key).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["system_fingerprint"] == "base"
    weights = {"version": "000001", "sampler_path": "tinker://one/sampler_weights/000001"}
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    client.put_object(Bucket=bucket, Key=f"team/{key(WeightsFile, 'tinker')}", Body=json.dumps(weights).encode())
    wait_for(lambda: place.ask(place.key).json()["system_fingerprint"] == "000001")
    assert place.tinker.calls[-1].weights == weights["sampler_path"]
