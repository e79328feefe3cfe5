"""An image in which the steps run in a pod: this machine's Python, the packages they need, and this checkout."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from cluster.local.mkimage import Image, write_images
from tests.base_image import SETTINGS, _as_root, _everything, _libraries, _tar
from tests.cluster.real_cluster import Cluster
from tests.paths import ROOT

REFERENCE = "localhost/swe-argo-test-steps:1"
UNUSED = {"swebench", "mini-swe-agent", "tinker"}
"""Packages whose own requirements only other parts of them need (pyproject.toml says so too)."""


def load_steps_image(cluster: Cluster) -> str:
    """The reference of an image whose ``python3 -m swe_argo.steps.<name>`` works, made of the steps as they are now.

    Put on the node each time, under one name: with a name for each content, all would be kept.
    """
    variables = [line.removeprefix("ENV ") for line in SETTINGS if line.startswith("ENV ")]
    config: dict[str, object] = {"Env": [*variables, "PYTHONPATH=/app:/app/packages"], "WorkingDir": "/app"}
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "swe-argo-test-steps.tar")
        layers = [_tar(dict(_everything())), _layer(dict(_ours()))]
        write_images(archive, [Image(REFERENCE, layers, config)])
        cluster.load(archive)
    return REFERENCE


def _ours() -> Iterator[tuple[str, Path]]:
    """Path in the image -> file of this machine: the steps, and what they import."""
    for path in sorted([*(ROOT / "steps").rglob("*"), *(ROOT / "templates" / "report").rglob("*")]):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"app/swe_argo/{path.relative_to(ROOT)}", path
    for file in distribution("swe-argo").files or ():  # that it is installed, and in which version
        if file.parts[0].endswith(".dist-info"):
            yield f"app/packages/{file}", Path(str(distribution("swe-argo").locate_file(file)))
    binaries = []
    for name in sorted(_required_distributions("swe-argo", "kubernetes", "boto3", "jinja2", "pyarrow")):
        package = distribution(name)
        for file in package.files or ():
            path = Path(str(package.locate_file(file))).resolve()
            if not {"..", "__pycache__", "tests", "include"} & {*file.parts} and path.is_file():
                yield f"app/packages/{file}", path
                binaries += [path] if path.suffix == ".so" else []
    for library in _libraries(binaries):
        place = library.parent.resolve() / library.name  # under the name by which it is asked for
        if "site-packages" not in place.parts:
            yield f"usr/{str(place).lstrip('/').removeprefix('usr/')}", library.resolve()


def _required_distributions(*names: str) -> set[str]:
    """Installed distributions that these require, and theirs; the first one is itself not among them."""
    required, waiting = {*names[1:]}, [*names]
    while waiting:
        name = waiting.pop()
        if name in UNUSED:
            continue
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            key = requirement.name.lower().replace("_", "-")
            if key not in required and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                required.add(key)
                waiting.append(key)
    return required


def _layer(files: dict[str, Path]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, source in sorted(files.items()):
            tar.add(source, name, recursive=False, filter=_as_root)
    return data.getvalue()


def step_pod(name: str, image: str, step: str, config_map: str) -> dict[str, Any]:
    """A pod that runs a step as an engine in the cluster would; it prints the record that the step gives."""
    own = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    flags = f"--in /in --out /out --try {name}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": "swe-argo-runner",
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": "step",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c", f"python3 -m swe_argo.steps.{step} {flags} && cat /out/{step}.json"],
                    "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in own.items()],
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"cpu": "1", "memory": "512Mi"},
                    },
                    "volumeMounts": [{"name": "in", "mountPath": "/in"}, {"name": "out", "mountPath": "/out"}],
                }
            ],
            "volumes": [{"name": "in", "configMap": {"name": config_map}}, {"name": "out", "emptyDir": {}}],
        },
    }
