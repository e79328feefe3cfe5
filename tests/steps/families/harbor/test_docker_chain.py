"""Harbor tasks in containers of a real engine: their images are built of their environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.datasets import load
from swe_argo.steps.datasets.mini import HARBOR_TASKS
from tests.base_image import base_image
from tests.steps.families.harbor.test_chain import AGENT, GREETING, PRIVATE
from tests.workflows.command import swe_argo

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = [pytest.mark.docker, pytest.mark.long]


@pytest.mark.usefixtures("docker_host")
def test_docker_judges_by_sandbox_files(
    docker_client: DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_ARGO_MINI_BASE", base_image(docker_client))
    (tmp_path / "worker.py").write_text(AGENT.format(command=GREETING + PRIVATE + "chown 7:8 /app/answer.txt"))
    images = {row["image"] for row in load.load("harbor:mini", "test").rows}
    agents = {"gold": 3, "idle": 0, f"{tmp_path}/worker.py:Worker": 1}
    try:
        for number, (agent, resolved) in enumerate(agents.items()):
            tasks = "harbor:mini" if number < 2 else str(HARBOR_TASKS / "greeting")
            result = swe_argo(
                *("run", "--dataset", tasks, "--backend", "docker", "--keep-images", "--agent", agent),
                *("--store", str(tmp_path / "s"), "--run-id", f"r{number}"),
            )
            assert result.returncode == 0, result.stdout + result.stderr
            assert f"resolved {resolved}/" in result.stdout
            for file in (tmp_path / "s" / "runs" / f"r{number}" / "units").glob("*/1/grade.json"):
                grade = json.loads(file.read_text())
                assert grade["integrity"] == {"verdict": "ok", "findings": []}
                assert grade["machine"]["isolation"] == "container"
    finally:
        for image in images:
            docker_client.images.remove(image, force=True)
