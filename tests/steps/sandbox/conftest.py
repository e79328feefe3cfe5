"""The machine and the repository that the conformance suite works on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.protocol import Sandbox
from tests.steps.sandbox.conformance import Lab


@pytest.fixture(scope="class")
def box(lab: Lab) -> Sandbox:
    """One machine without network, shared by the tests of a class."""
    return lab.create(deadline_s=1800)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository of one commit whose only file is ``hello.txt``."""
    folder = tmp_path_factory.mktemp("image") / "testbed"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "hello.txt"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder
