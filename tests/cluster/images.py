"""An image for sandboxes on the cluster's node: no registry, no container engine."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.base_image import SETTINGS, _as_root, _everything, _stamp, _tar
from tests.cluster.real_cluster import Cluster
from tests.paths import ROOT

MKIMAGE = ROOT / "cluster" / "local" / "mkimage.py"
RECIPE = "1"
"""Part of the image's tag: another content needs another number."""


def load_sandbox_image(cluster: Cluster, folder: Path) -> str:
    """The reference of the image, made in ``folder`` and loaded unless it is on the node already.

    Its tag is a digest of this machine's programs, which it consists of: it is safe to reuse.
    """
    files = dict(_everything())
    digest = hashlib.sha256("\n".join(f"{to} {src} {_stamp(src)}" for to, src in sorted(files.items())).encode())
    digest.update(RECIPE.encode())
    reference = f"localhost/swe-argo-test-bed:{digest.hexdigest()[:16]}"
    if reference not in cluster.images():
        cluster.load(sandbox_archive(reference, files, folder))
    return reference


def sandbox_archive(reference: str, files: dict[str, Path], folder: Path) -> Path:
    """An image archive of two layers: the programs, and the checkout at /testbed."""
    programs, testbed = folder / "programs.tar", folder / "testbed.tar"
    programs.write_bytes(_tar(files))
    testbed.write_bytes(_checkout_layer(folder / "testbed"))
    archive = folder / "swe-argo-test-bed.tar"
    variables = [line.removeprefix("ENV ") for line in SETTINGS if line.startswith("ENV ")]
    command = [sys.executable, str(MKIMAGE), reference, str(archive), "--layer", str(programs), "--layer", str(testbed)]
    subprocess.run([*command, *(f"--env={variable}" for variable in variables), "--workdir=/testbed"], check=True)
    programs.unlink()
    return archive


def _checkout_layer(folder: Path) -> bytes:
    """A git repository of one commit whose only file is ``hello.txt``."""
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    when = {"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
    for command in (["init", "-q"], ["add", "hello.txt"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=folder, check=True, env={**os.environ, **when})
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(folder, "testbed", filter=_as_root)
    return data.getvalue()
