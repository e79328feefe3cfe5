"""Image archives, made without a container engine."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.paths import ROOT

MKIMAGE = ROOT / "cluster" / "local" / "mkimage.py"


def mkimage(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MKIMAGE), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file}


def layer_with(name: str, text: str, path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_image_has_layers_in_order(tmp_path: Path) -> None:
    layers = [layer_with("a", "one", tmp_path / "1.tar"), layer_with("b", "two", tmp_path / "2.tar")]
    options = ["--env", "LANG=C.UTF-8", "--workdir", "/testbed", "--cmd", "sleep", "infinity"]
    result = mkimage("localhost/x:1", tmp_path / "x.tar", "--layer", layers[0], "--layer", layers[1], *options)
    assert result.returncode == 0, result.stderr
    files = content(tmp_path / "x.tar")
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert [files[name] for name in manifest["Layers"]] == [layer.read_bytes() for layer in layers]
    image = json.loads(files[manifest["Config"]])
    digests = [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}" for layer in layers]
    assert image["rootfs"] == {"type": "layers", "diff_ids": digests}
    assert image["config"]["Cmd"] == ["sleep", "infinity"]
    assert image["config"]["WorkingDir"] == "/testbed"
    assert any(variable.startswith("PATH=/usr/local/sbin:") for variable in image["config"]["Env"])
    assert "LANG=C.UTF-8" in image["config"]["Env"]


def test_image_is_reproducible(tmp_path: Path) -> None:
    program = tmp_path / "program"
    for archive in ("one.tar", "two.tar"):
        program.write_text("#!/bin/sh\n")  # of another time
        assert mkimage("localhost/x:1", tmp_path / archive, "--add", f"{program}:/usr/bin/program").returncode == 0
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_added_file_is_executable(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"hello")
    both = ["--add", f"{program}:/opt/bin/one", "--add", f"{program}:/opt/bin/two"]
    assert mkimage("localhost/x:1", tmp_path / "x.tar", *both).returncode == 0
    files = content(tmp_path / "x.tar")
    (manifest,) = json.loads(files["manifest.json"])
    with tarfile.open(fileobj=io.BytesIO(files[manifest["Layers"][0]])) as layer:
        assert layer.getnames() == ["tmp", "opt", "opt/bin", "opt/bin/one", "opt/bin/two"]
        assert layer.getmember("tmp").mode == 0o1777
        one = layer.getmember("opt/bin/one")
        assert (one.mode, one.uid, one.mtime, one.size) == (0o755, 0, 0, 5)


def test_missing_layer_is_named(tmp_path: Path) -> None:
    result = mkimage("localhost/x:1", tmp_path / "x.tar", "--layer", tmp_path / "none.tar")
    assert result.returncode == 2
    assert "none.tar" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "x.tar").exists()
