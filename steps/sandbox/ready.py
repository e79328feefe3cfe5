"""Whether a backend can give a run its sandboxes: asked once by plan, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from steps.contracts.data import FailureClass
from steps.contracts.images import through_registry
from steps.contracts.run import SandboxSpec
from steps.errors import ConfigError
from steps.sandbox import bubblewrap
from steps.settings import settings


@dataclass(frozen=True)
class Ready:
    """What a person should know of the machines, and the digests of those images that are here already."""

    notices: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)


def ready(wish: SandboxSpec, images: list[str], *, acts: bool) -> Ready:
    """Check the backend for these images. ``acts``: the agent runs commands of its own.

    Raises ConfigError: no engine, no folder, no disk, no isolation.
    """
    if wish.backend == "docker":
        return _docker(wish, images)
    if acts and not wish.allow_host and (why_not := bubblewrap.probe()):
        raise ConfigError(
            f"agents that run commands need isolation, and there is none here ({why_not}): "
            "use --backend docker, or say --allow-host",
            field="sandbox.backend",
        )
    return _local(wish, images)


def _local(wish: SandboxSpec, images: list[str]) -> Ready:
    root = Path(wish.local_images).expanduser() if wish.local_images else settings().local_images
    folders = {image: root / image.replace("/", "__") for image in images}
    missing = [folder for folder in folders.values() if not (folder / "testbed").is_dir()]
    if missing:
        raise ConfigError(
            f"{len(missing)} of {len(images)} images are not unpacked for backend local "
            f"({missing[0]}/testbed for one): use --backend docker, which pulls them, or --local-images DIR",
            field="sandbox.backend",
            failure_class=FailureClass.IMAGE_MISSING,
        )
    digests = {image: (folder / "digest") for image, folder in folders.items()}
    return Ready(digests={image: path.read_text().strip() for image, path in digests.items() if path.is_file()})


def _docker(wish: SandboxSpec, images: list[str]) -> Ready:
    from steps.sandbox import disk, docker_engine, docker_images

    listed = docker_engine.client().api.images()
    here = {tag: docker_images.digest(image) for image in listed for tag in image.get("RepoTags") or ()}
    names = {image: disk.listed_as(through_registry(image, wish.registry)) for image in images}
    budget = int(wish.disk_budget_gb * 2**30) if wish.disk_budget_gb else None
    return Ready(
        notices=disk.check_disk(images, wish.keep_images, budget, wish.registry),
        digests={image: here[name] for image, name in names.items() if name in here},
    )
