"""Checks that the images of a run fit on the Docker engine's disk."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from docker import APIClient

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.sandbox_spec import DockerSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.docker.engine import connect_engine

GIB = 2**30
IMAGE_BYTES = int(1.3 * GIB)
"""An unknown image, unpacked. SWE-bench Verified's 500 take 67 GiB with shared layers, 684 GiB without."""


def estimate_pull_bytes(images: Iterable[str], registry: str | None = None) -> int:
    """Return an upper bound of the bytes of missing images, at IMAGE_BYTES each."""
    listed = connect_engine().api.images()  # one call instead of hundreds
    here = {name for image in listed for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))}
    return IMAGE_BYTES * len({listed_as(through_registry(image, registry)) for image in images} - here)


def check_disk(images: Iterable[str], keep: bool, budget_bytes: int | None, registry: str | None = None) -> list[str]:
    """Return notices about the disk for a run's user.

    Raises ConfigError if no engine answers, or if not even one missing image fits.
    """
    image_set = set(images)
    info = connect_engine().api.info()
    free = free_bytes(info)
    needed = estimate_pull_bytes(image_set, registry)
    if not needed:
        return []
    missing = needed // IMAGE_BYTES
    if free is None:
        return [
            f"{missing} of {len(image_set)} images are to be pulled; the Docker engine's disk cannot be seen from here"
        ]
    root = info["DockerRootDir"]
    if free < IMAGE_BYTES:
        raise ConfigError(
            f"{_gib(free)} free at {root}, and one image takes about {_gib(IMAGE_BYTES)}: make room there "
            "(docker system prune), or move the engine's data-root",
            field="sandbox.backend",
            failure_class=FailureClass.OUT_OF_DISK,
        )
    notices = [
        f"{missing} of {len(image_set)} images are to be pulled, up to {_gib(needed)}; {_gib(free)} free at {root}"
    ]
    if keep and needed > free:
        notices.append(f"--keep-images may fill the disk: up to {_gib(needed)} wanted, {_gib(free)} free at {root}")
    if budget_bytes is not None and budget_bytes > free:
        notices.append(f"--disk-budget-gb of {_gib(budget_bytes)} is more than is free at {root}: {_gib(free)}")
    return notices


def free_bytes(info: Mapping[str, Any]) -> int | None:
    """Return the free space at the engine's root, given its ``info``.

    None if the root is not on this machine (in a virtual machine, remote).
    """
    root = str(info.get("DockerRootDir", ""))
    if not root or info.get("Name") != platform.node() or not Path(root).is_dir():
        return None
    return shutil.disk_usage(root).free


def stated_budget(spec: DockerSpec) -> int | None:
    """Return the bytes that images may take, if the spec sets a budget."""
    return int(spec.disk_budget_gb * GIB) if spec.disk_budget_gb else None


def default_budget(api: APIClient) -> int:
    """Return half of the free space at the engine's root, or four images if that is unknown."""
    info = api.info()
    free = free_bytes(info)
    return free // 2 if free is not None else 4 * IMAGE_BYTES


def listed_as(name: str) -> str:
    """Return a name as the engine lists it: Docker Hub unnamed, the tag always named."""
    name = name.removeprefix("docker.io/").removeprefix("library/")
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
