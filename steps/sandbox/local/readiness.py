"""Check, before a run, that this machine can run its sandboxes."""

from __future__ import annotations

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.images import image_folder, image_root, read_digest
from swe_argo.steps.sandbox.readiness import ReadinessResult, SandboxNeeds


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Check isolation and images. Raises ConfigError without isolation for an agent that acts, or without an image.

    Returns the digests of the images that have a file ``digest``.
    """
    if sandbox_needs.acts and not spec.allow_host and (problem := bubblewrap.probe()):
        raise ConfigError(
            f"agents that run commands need isolation, which this machine does not have ({problem}): "
            "use --backend docker, or allow it with --allow-host",
            field="sandbox.backend",
        )
    root = image_root(spec.local)
    folders = {image: image_folder(root, image) for image in sandbox_needs.images}
    try:
        missing = [folder for folder in folders.values() if not (folder / "testbed").is_dir()]
    except OSError as error:  # another user's folder
        raise ConfigError(f"cannot use {root}: {error.strerror}", field="sandbox.local.images") from error
    if missing:
        raise ConfigError(
            f"{len(missing)} of {len(sandbox_needs.images)} images are not unpacked for backend local "
            f"(first missing: {missing[0]}/testbed): use --backend docker, which pulls them, or --local-images DIR",
            field="sandbox.backend",
            failure_class=FailureClass.IMAGE_MISSING,
        )
    digests = {image: read_digest(folder) for image, folder in folders.items()}
    return ReadinessResult(digests={image: digest for image, digest in digests.items() if digest is not None})
