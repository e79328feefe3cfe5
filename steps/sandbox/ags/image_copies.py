"""Copying of images, by skopeo, to a registry that the service can pull from."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, one_line

PROGRAM = "skopeo"
_TAG = 100
"""Maximum characters of the original tag in a copy's tag; registries allow 128 in all."""
_SECONDS = 3600
"""Maximum seconds of one call of skopeo."""


def require_skopeo() -> str:
    """Return the path of skopeo. Raises ConfigError if it is not installed."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise ConfigError(
            "copying images needs skopeo, which is not installed (apt-get install skopeo, brew install skopeo); "
            "leave out --to if AGS can already pull the images",
            field="ags sync",
        )
    return path


def copy_name(image: str, to: str) -> str:
    """Return the name of an image's copy below ``to``, a registry and a namespace.

    The tag contains a hash of the full name, so that images of several owners never share a name.
    """
    whole, _, digest = image.partition("@")
    last = whole.rpartition("/")[2]
    name, _, tag = last.partition(":")
    version = tag or digest.rpartition(":")[2][:12] or "latest"
    return f"{to.rstrip('/')}/{name.lower()}:{version[:_TAG]}-{hashlib.sha256(image.encode()).hexdigest()[:8]}"


def copy_image(image: str, name: str, platform: str) -> bool:
    """Copy an image to the name ``name``; return False if it exists already.

    Raises ConfigError if a registry denies access, InfraError for any other failure, with skopeo's message.
    """
    program = require_skopeo()
    if _run([program, "inspect", "--raw", f"docker://{name}"]).returncode == 0:
        return False
    system, _, architecture = platform.partition("/")
    options = [f"--override-os={system}", f"--override-arch={architecture}"]
    result = _run([program, *options, "copy", "--retry-times=3", f"docker://{image}", f"docker://{name}"])
    if result.returncode:
        message = one_line((result.stderr or result.stdout).strip().rpartition("\n")[2], 300)
        if "unauthorized" in message.lower() or "denied" in message.lower():
            raise ConfigError(
                f"skopeo may not copy {image} to {name}: {message}: run skopeo login {name.partition('/')[0]}",
                field="ags sync",
                detail=result.stderr,
            )
        raise InfraError(FailureClass.IMAGE_PULL, f"copying {image} to {name}: {message}", detail=result.stderr)
    return True


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run skopeo. Raises InfraError if it takes too long."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InfraError(FailureClass.IMAGE_PULL, f"{words[-1]}: skopeo took longer than {_SECONDS} s") from error
