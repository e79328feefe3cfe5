"""Whether the images of a run fit on the Docker engine's disk."""

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
"""An unknown image, unpacked. SWE-bench Verified's 500 take 67 GiB where layers are shared, 684 GiB where none are."""


def estimate_pull_bytes(images: Iterable[str], registry: str | None = None) -> int:
    """Bytes that those of these images take which are not here yet, at IMAGE_BYTES each: an upper bound."""
    listed = connect_engine().api.images()  # one call, where asking for each would be hundreds
    here = {name for image in listed for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ()))}
    return IMAGE_BYTES * len({listed_as(through_registry(image, registry)) for image in images} - here)


def check_disk(images: Iterable[str], keep: bool, budget_bytes: int | None, registry: str | None = None) -> list[str]:
    """What a person should know of the disk before a run.

    Raises ConfigError when no engine answers, or when not even one missing image fits.
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
    """Free space at the root of the engine, which says ``info`` of itself.

    None where it is not on this machine (in a virtual machine, remote).
    """
    root = str(info.get("DockerRootDir", ""))
    if not root or info.get("Name") != platform.node() or not Path(root).is_dir():
        return None
    return shutil.disk_usage(root).free


def stated_budget(spec: DockerSpec) -> int | None:
    """Bytes that images may take, where the spec says it."""
    return int(spec.disk_budget_gb * GIB) if spec.disk_budget_gb else None


def default_budget(api: APIClient) -> int:
    """Half of what is free at the engine's root; four images where that cannot be seen."""
    info = api.info()
    free = free_bytes(info)
    return free // 2 if free is not None else 4 * IMAGE_BYTES


def listed_as(name: str) -> str:
    """A name as the engine lists it: Docker Hub unnamed, the tag always named."""
    name = name.removeprefix("docker.io/").removeprefix("library/")
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
