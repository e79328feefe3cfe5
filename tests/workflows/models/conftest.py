from __future__ import annotations

import pytest

from tests.base_image import base_image


@pytest.fixture(params=["local", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.long])])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Backends local and, with a base for the images of mini that needs no registry, docker."""
    if request.param == "docker":
        request.getfixturevalue("docker_host")
        monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(request.getfixturevalue("docker_client")))
    return str(request.param)
