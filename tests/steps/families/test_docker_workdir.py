"""A row of SWE-rebench V2 in containers of a real engine: the repository at /calc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.base_image import base_image
from tests.steps.families.chain import read_record, run_chain
from tests.steps.families.rebench.lab import V2_IMAGE, make_lab

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = [pytest.mark.docker, pytest.mark.long]

DOCKERFILE = "ARG BASE\nFROM $BASE\nCOPY testbed /calc\nWORKDIR /calc\n"
AGENT = """
from swe_argo.steps.contracts.trajectory import StopReason


class Looker:
    def act(self, task):
        seen = task.box.exec("pwd; ls -d /*; sed -i s/41/42/ calc.py", timeout_s=60).stdout.decode()
        task.recorder.add_message("user", seen)
        return StopReason.FINISHED
"""


@pytest.mark.usefixtures("docker_host")
def test_docker_workdir_is_graded(docker_client: DockerClient, tmp_path: Path) -> None:
    folder = make_lab(tmp_path).parent
    (folder / "Dockerfile").write_text(DOCKERFILE)
    docker_client.images.build(path=str(folder), tag=V2_IMAGE, buildargs={"BASE": base_image(docker_client)}, rm=True)
    docker = ("--backend", "docker", "--keep-images")
    try:
        grade = read_record(run_chain(tmp_path, tmp_path / "gold", *docker, "--agent", "gold"), "grade.json")
        assert (grade["outcome"], grade["reward"]) == ("resolved", 1.0), grade
        assert grade["integrity"] == {"verdict": "ok", "findings": []}
        assert grade["machine"]["workdir"] == "/calc"
        unit = run_chain(tmp_path, tmp_path / "idle", *docker, "--agent", "idle")
        assert read_record(unit, "grade.json")["outcome"] == "unresolved"
        (tmp_path / "looker.py").write_text(AGENT)
        unit = run_chain(tmp_path, tmp_path / "own", *docker, "--agent", f"{tmp_path}/looker.py:Looker")
        assert read_record(unit, "grade.json")["resolved"] is True
        trajectory = (unit / "trajectory.json").read_text()
        assert "/calc\\n/bin\\n" in trajectory
    finally:
        docker_client.images.remove(V2_IMAGE, force=True)
