"""Copies of images in a registry that the service can pull from, by skopeo."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, one_line

PROGRAM = "skopeo"
_TAG = 100
_SECONDS = 3600


def require_skopeo() -> str:
    """Return the path of skopeo. Raises ConfigError if it is not installed."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise ConfigError(
            "copying images needs skopeo, which is not installed (apt-get install skopeo, brew install skopeo); "
            "with images that AGS can pull already, leave --to out",
            field="ags sync",
        )
    return path


def copy_name(image: str, to: str) -> str:
    """Return the name of an image's copy below ``to``, a registry and a namespace.

    A hash of the whole name is in its tag, so that images of several owners never share one.
    """
    whole, _, digest = image.partition("@")
    last = whole.rpartition("/")[2]
    name, _, tag = last.partition(":")
    version = tag or digest.rpartition(":")[2][:12] or "latest"
    return f"{to.rstrip('/')}/{name.lower()}:{version[:_TAG]}-{hashlib.sha256(image.encode()).hexdigest()[:8]}"


def copy_image(image: str, name: str, platform: str) -> bool:
    """Copy an image; return False if it is there already. Raises InfraError, ConfigError with skopeo's words."""
    program = require_skopeo()
    if _run([program, "inspect", "--raw", f"docker://{name}"]).returncode == 0:
        return False
    system, _, architecture = platform.partition("/")
    chosen = [f"--override-os={system}", f"--override-arch={architecture}"]
    done = _run([program, *chosen, "copy", "--retry-times=3", f"docker://{image}", f"docker://{name}"])
    if done.returncode:
        words = one_line((done.stderr or done.stdout).strip().rpartition("\n")[2], 300)
        if "unauthorized" in words.lower() or "denied" in words.lower():
            raise ConfigError(
                f"skopeo may not copy {image} to {name}: {words}: skopeo login {name.partition('/')[0]}",
                field="ags sync",
                detail=done.stderr,
            )
        raise InfraError(FailureClass.IMAGE_PULL, f"copying {image} to {name}: {words}", detail=done.stderr)
    return True


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InfraError(FailureClass.IMAGE_PULL, f"{words[-1]}: skopeo took longer than {_SECONDS} s") from error
