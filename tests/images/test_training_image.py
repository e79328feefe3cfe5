"""The image of training: the steps' own, and on it what the proxy needs."""

from __future__ import annotations

import pytest

from tests.images.conftest import Shop
from tests.images.index import PASSWORD

pytestmark = [pytest.mark.images, pytest.mark.slow, pytest.mark.timeout(900)]

MORE_MB = 60
"""Unpacked, the wheels are 39: zstandard 24, tokenizers 12."""


def test_training_image_extends_steps(shop: Shop, steps_image: str, training_image: str) -> None:
    below, above = (shop.client.images.get(name).attrs["RootFS"]["Layers"] for name in (steps_image, training_image))
    assert above[: len(below)] == below
    assert len(above) == len(below) + 2  # packages, and the viewer


def test_training_image_needs_key(shop: Shop, training_image: str) -> None:
    command = "python -m swe_argo.steps.proxy --base-model=a/b --tokenizer=/tmp || echo ended with $?"
    output = shop.inside(training_image, "sh", "-c", f"({command}) 2>&1")
    assert "TINKER_API_KEY: is not set" in output
    assert output.endswith("ended with 64\n")


def test_training_image_loads_server(shop: Shop, training_image: str) -> None:
    modules = [f"swe_argo.steps.serving.{name}" for name in ("server", "chat_template", "tinker_sampler")]
    code = f"import boto3, {', '.join(modules)}; print('ready')"
    assert shop.inside(training_image, "python", "-W", "ignore", "-c", code).strip() == "ready"


ASK = """
import subprocess, sys, urllib.request
command = [sys.executable, "-m", "swe_argo.workflows.view", "--store=/tmp", "--port=0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewer:
    address = viewer.stdout.readline().split()[-1]
    print(urllib.request.urlopen(address, timeout=60).status)
    viewer.kill()
"""


def test_training_image_serves_view(shop: Shop, training_image: str) -> None:
    assert shop.inside(training_image, "python", "-c", ASK).strip() == "200"


def test_training_image_runs_as_steps(shop: Shop, steps_image: str, training_image: str) -> None:
    steps, training = (shop.client.images.get(name).attrs["Config"] for name in (steps_image, training_image))
    assert (training["User"], training["Env"]) == (steps["User"], steps["Env"])
    programs = shop.inside(training_image, "sh", "-c", "for each in pip pip3 uv cc; do command -v $each; done; :")
    assert programs == ""


def test_training_image_has_no_password(shop: Shop, training_image: str) -> None:
    assert shop.inside(training_image, "sh", "-c", f"grep -rlF {PASSWORD} /opt /etc || :", user="0") == ""


def test_training_image_size_is_bounded(shop: Shop, steps_image: str, training_image: str) -> None:
    size = {name: shop.client.images.get(name).attrs["Size"] for name in (steps_image, training_image)}
    assert (size[training_image] - size[steps_image]) / 1e6 < MORE_MB
