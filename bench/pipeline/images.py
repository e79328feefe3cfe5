"""Images for the measurement, with compiled modules as real ones have them: else every step would compile its own."""

from __future__ import annotations

import importlib.util
import io
import marshal
import tarfile
import tempfile
from pathlib import Path

from bench.pipeline.sleeps import IMAGE, INSTANCE
from cluster.local.mkimage import Image, write_images
from tests.argo import image as steps_image
from tests.argo.image import REPOSITORY
from tests.base_image import SETTINGS, _everything, _tar
from tests.cluster.mini import _instance_layer
from tests.cluster.real_cluster import Cluster

TAG = "bench"
_ENV = [line.removeprefix("ENV ") for line in SETTINGS if line.startswith("ENV ")]
_PATHS = [f"PYTHONPATH={steps_image.PYTHONPATH}", "PYTHONDONTWRITEBYTECODE=1"]


def load_images(cluster: Cluster) -> None:
    """Put both on the node: that of the steps, and that of the sandboxes."""
    programs = {name.lstrip("/"): path for name, path in _everything()}
    packages, project = dict(steps_image._packages()), dict(steps_image._project())
    base = _tar(dict(_everything()))
    entries = [
        Image(
            f"{REPOSITORY}:{TAG}",
            [
                base,
                steps_image._layer(packages),
                steps_image._layer(project, steps_image._texts()),
                _compiled(programs | packages | project),
            ],
            {"Env": [*_ENV, *_PATHS], "WorkingDir": "/tmp"},
        ),
        Image(IMAGE, [base, _compiled(programs), _instance_layer(INSTANCE)], {"Env": _ENV, "WorkingDir": "/testbed"}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "swe-argo-bench.tar")
        write_images(archive, entries)
        cluster.load(archive)


def _compiled(files: dict[str, Path]) -> bytes:
    """A layer with the compiled module of each, which Python takes without a look at its source (PEP 552)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, source in sorted(files.items()):
            if source.suffix == ".py" and "/mini/" not in name:
                code = _code(source)
                unchecked = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
                info = tarfile.TarInfo(importlib.util.cache_from_source(name))
                info.size = len(unchecked) + len(code)
                tar.addfile(info, io.BytesIO(unchecked + code))
    return data.getvalue()


def _code(source: Path) -> bytes:
    """Its compiled form without the header: this machine's, where that is of this very file."""
    cached, stat = Path(importlib.util.cache_from_source(str(source))), source.stat()
    head = b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in (0, int(stat.st_mtime), stat.st_size))
    if cached.is_file() and (data := cached.read_bytes())[4:16] == head:
        return data[16:]
    return marshal.dumps(compile(source.read_bytes(), str(source), "exec", dont_inherit=True))
