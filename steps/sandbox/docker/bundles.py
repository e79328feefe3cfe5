"""An agent's files in a Docker engine: one volume per bundle, filled once, even on a remote engine.

The volume belongs to a container that never runs and bears the bundle's digest in its name. It gets that name only once
its volume is full: so an interrupted fill is never used, and of two concurrent fills one gives way.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import uuid
from pathlib import Path

from docker import APIClient
from docker.errors import APIError, NotFound

from swe_argo.steps.bundles.tree import write_tar
from swe_argo.steps.contracts.recipe import BUNDLE_PLACE
from swe_argo.steps.sandbox.docker.engine import EngineRetries
from swe_argo.steps.sandbox.docker.orphans import LABEL, remove

KIND = "agent"
"""Label value of such containers; sandboxes have another."""
_IMAGE = "swe-argo-agent:empty"


def holder_of(api: APIClient, digest: str, folder: Path, patience: EngineRetries) -> str:
    """Return the name of the container whose volume has the files in ``folder``; make and fill it if missing.

    Raises APIError, requests' errors, OSError.
    """
    name = f"swe-argo-agent-{digest.removeprefix('sha256:')[:32]}"
    try:
        api.inspect_container(name)
    except NotFound:
        _fill(api, name, digest, folder, patience)
    return name


def _fill(api: APIClient, name: str, digest: str, folder: Path, patience: EngineRetries) -> None:
    container = api.create_container(
        image=_empty_image(api),
        command=["none"],
        name=f"{name}-{uuid.uuid4().hex[:8]}",
        volumes=[BUNDLE_PLACE],
        labels={LABEL: KIND, f"{LABEL}/digest": digest},
    )["Id"]
    kept = False
    try:
        with tempfile.TemporaryFile() as archive:
            write_tar(folder, archive)
            archive.seek(0)
            api.put_archive(container, BUNDLE_PLACE, archive)
        try:
            api.rename(container, name)
            kept = True
        except APIError as error:
            if error.status_code != 409:  # another process was first
                raise
    finally:
        if not kept:
            remove(api, container, patience)


def _empty_image(api: APIClient) -> str:
    """Return an empty image: a container must have one."""
    if not api.images(_IMAGE):
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w") as archive:
            folder = tarfile.TarInfo(BUNDLE_PLACE.removeprefix("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        repository, _, tag = _IMAGE.partition(":")
        api.import_image_from_data(empty.getvalue(), repository=repository, tag=tag)
    return _IMAGE
