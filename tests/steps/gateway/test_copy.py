"""The gateway's command copy: takes an agent's files out of their image where a cluster cannot mount it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import architecture_here
from swe_argo.steps.bundles.stored import digest_tree
from swe_argo.steps.contracts.recipe import COPIER
from swe_argo.steps.gateway.binary import find_gateway
from tests.steps.gateway.toolchain import needs_go

pytestmark = needs_go


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An agent's files, and beside them the program that copies them."""
    root = tmp_path / "image"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "go").write_text("#!/bin/sh\necho gone\n")
    (root / "bin" / "go").chmod(0o755)
    (root / "data").write_bytes(bytes(range(256)) * 5000)
    (root / "link").symlink_to("bin/go")
    (root / "nowhere").symlink_to("/none/such")
    (root / "empty").mkdir()
    return root


def run_copy(image: Path, to: Path) -> subprocess.CompletedProcess[str]:
    program = image / COPIER
    program.parent.mkdir()
    program.write_bytes(find_gateway(architecture_here()))
    program.chmod(0o755)
    return subprocess.run([program, "copy", image, to], capture_output=True, text=True, check=False)


def test_copy_omits_only_the_program(image: Path, tmp_path: Path) -> None:
    digest = digest_tree(image)
    (tmp_path / "copy").mkdir()
    result = run_copy(image, tmp_path / "copy")
    assert (result.returncode, result.stderr) == (0, "")
    assert digest_tree(tmp_path / "copy") == digest
    assert subprocess.run([tmp_path / "copy" / "link"], capture_output=True, check=True).stdout == b"gone\n"


def test_copy_reports_existing_file(image: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "data").write_text("another")
    result = run_copy(image, tmp_path / "copy")
    assert result.returncode == 1
    assert result.stderr.strip() == f"open {tmp_path}/copy/data: file exists"


def test_copy_omits_runtime_mounts(image: Path, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or os.getuid() != 0:
        pytest.skip("mounts take unshare and root")
    digest = digest_tree(image)
    (image / "etc").mkdir()
    (image / "etc" / "hosts").touch()
    (image / "proc").mkdir()
    (image / ".swe-argo" / "files").mkdir(parents=True)
    (image / ".swe-argo" / "copy").write_bytes(find_gateway(architecture_here()))
    (image / ".swe-argo" / "copy").chmod(0o755)
    (tmp_path / "copy").mkdir()
    script = """
    mount --bind "$2" "$1/.swe-argo/files" && mount --bind /etc/hosts "$1/etc/hosts" && mount -t proc proc "$1/proc" &&
    exec chroot "$1" /.swe-argo/copy copy / /.swe-argo/files
    """
    words = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", str(image), str(tmp_path / "copy")]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Operation not permitted" in result.stderr:
        pytest.skip(f"no mounts here: {result.stderr.strip()}")
    assert (result.returncode, result.stderr) == (0, "")
    assert digest_tree(tmp_path / "copy") == digest
