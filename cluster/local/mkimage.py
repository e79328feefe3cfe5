#!/usr/bin/env python3
"""Write an image archive (the layout of `docker save`) without a container engine.

  mkimage.py NAME:TAG OUT.tar --layer LAYER.tar ... [--env K=V ...] [--workdir DIR] [--cmd ARG...]
  mkimage.py NAME:TAG OUT.tar --add FILE:/path/in/image ... [--cmd ARG...]

Same input, same bytes: what it adds carries no times, and root owns it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def layer_of(pairs: list[str]) -> bytes:
    """Return a layer with each ``FILE:/path`` at its path, executable, with its folders and a world-writable /tmp."""
    buffer = io.BytesIO()
    added_folders: set[str] = set()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
        for pair in pairs:
            source, target = pair.rsplit(":", 1)
            content = Path(source).read_bytes()
            parts = target.strip("/").split("/")
            for depth in range(1, len(parts)):
                folder = tarfile.TarInfo("/".join(parts[:depth]))
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                if folder.name not in added_folders:
                    tar.addfile(folder)
                added_folders.add(folder.name)
            _add(tar, "/".join(parts), content, mode=0o755)
    return buffer.getvalue()


@dataclass(frozen=True)
class Image:
    """A reference, uncompressed layers, lowest first, and the image's configuration (Env, Cmd, WorkingDir)."""

    reference: str
    layers: list[bytes]
    config: dict[str, object]


def write_images(out: Path, images: list[Image]) -> None:
    """One archive of several images; a layer that some of them share is in it once."""
    digests: dict[int, str] = {}
    files: dict[str, bytes] = {}
    manifest: list[dict[str, object]] = []
    for image in images:
        for layer in image.layers:
            digests[id(layer)] = digests.get(id(layer)) or hashlib.sha256(layer).hexdigest()
            files[f"{digests[id(layer)]}.tar"] = layer
        described = _described([digests[id(layer)] for layer in image.layers], image.config)
        name = f"{hashlib.sha256(described).hexdigest()}.json"
        files[name] = described
        layers = [f"{digests[id(layer)]}.tar" for layer in image.layers]
        manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": layers})
    with tarfile.open(out, "w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        for name, data in files.items():
            _add(tar, name, data)


def _described(digests: list[str], config: dict[str, object]) -> bytes:
    image = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": "1970-01-01T00:00:00Z"} for _ in digests],
    }
    return json.dumps(image).encode()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def main(arguments: list[str]) -> None:
    """Run the command line described above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference")
    parser.add_argument("out", type=Path)
    content = parser.add_mutually_exclusive_group(required=True)
    content.add_argument("--layer", action="append", type=Path, metavar="LAYER.tar", help="lowest first")
    content.add_argument("--add", action="append", metavar="FILE:/PATH")
    parser.add_argument("--env", action="append", default=[], metavar="K=V")
    parser.add_argument("--workdir", default="/")
    parser.add_argument("--cmd", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        layers = [layer_of(options.add)] if options.add else [path.read_bytes() for path in options.layer]
    except OSError as error:
        parser.error(str(error))
    environment = options.env if any(variable.startswith("PATH=") for variable in options.env) else [PATH, *options.env]
    config = {"Env": environment, "Cmd": options.cmd, "WorkingDir": options.workdir}
    write_images(options.out, [Image(options.reference, layers, config)])


if __name__ == "__main__":
    main(sys.argv[1:])
