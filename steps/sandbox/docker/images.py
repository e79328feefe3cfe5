"""Lookup and pull of images on a Docker engine, with permanent and transient failures distinguished."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.docker.engine import EngineRetries, engine_failure, engine_message

PULL_PATIENCE = EngineRetries(attempts=5, first_s=2.0, longest_s=30.0)

# Messages of engines and registries about images that do not exist, may not be pulled, or have no valid name.
_MISSING = re.compile(
    r"manifest unknown|name unknown|manifest for .* not found|repository .* not found|repository does not exist"
    r"|no matching manifest|does not match the specified platform|not found: does not exist|: not found$",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(r"unauthorized|authentication required|no basic auth credentials|denied", re.IGNORECASE)
_MALFORMED = re.compile(r"invalid reference format|invalid tag format|must be lowercase", re.IGNORECASE)


def ensure_image(api: APIClient, image: str, platform: str, patience: EngineRetries = PULL_PATIENCE) -> dict[str, Any]:
    """Return the engine's description of ``image``; pull it if the engine lacks it for ``platform``.

    A local image for another platform is used if its registry reports the image missing or forbidden.
    Raises ConfigError (IMAGE_MISSING) if its registry reports it missing or forbidden, ResourceError if the disk is
    full, InfraError (IMAGE_PULL) for any other failure after all retries.
    """
    local = local_image(api, image)
    if local is not None and matches_platform(local, platform):
        return local
    try:
        pull(api, image, platform, patience)
    except ConfigError as error:
        if local is None or error.failure_class is not FailureClass.IMAGE_MISSING:
            raise
        return local  # built on this machine, for this machine
    pulled = local_image(api, image)
    if pulled is None:
        raise InfraError(FailureClass.IMAGE_PULL, f"image {image} was pulled, but the engine does not have it")
    return pulled


def local_image(api: APIClient, image: str) -> dict[str, Any] | None:
    """Return the engine's description of a local image, or None."""
    try:
        inspected: dict[str, Any] = api.inspect_image(image)  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return None
    return inspected


def matches_platform(inspected: dict[str, Any], platform: str) -> bool:
    """Return whether an image is for ``platform`` (os/architecture, without the variant)."""
    system, _, architecture = platform.partition("/")
    return [inspected.get("Os"), inspected.get("Architecture")] == [system, architecture.partition("/")[0]]


def digest(inspected: dict[str, Any]) -> str:
    """Return the digest of an image from the engine's description: the registry's if known, else the image id."""
    digests = inspected.get("RepoDigests") or []
    return str(digests[0]).rpartition("@")[2] if digests else str(inspected["Id"])


def pull(api: APIClient, image: str, platform: str, patience: EngineRetries = PULL_PATIENCE) -> None:
    """Pull one image, with retries of transient failures. Raises as ``ensure_image``."""
    patience.retrying(lambda error: isinstance(error, InfraError))(_pull_once, api, image, platform)


def _pull_once(api: APIClient, image: str, platform: str) -> None:
    """Pull one image without retries. Raises ``pull_failure``, or InfraError if the engine fails."""
    try:
        lines = api.pull(image, platform=platform, stream=True, decode=True)
        with closing(lines):
            for line in lines:
                if "error" in line:  # the engine answers 200 first and fails later
                    raise pull_failure(image, str(line["error"]))
    except APIError as error:
        raise pull_failure(image, engine_message(error)) from error
    except (DockerException, requests.RequestException, OSError) as error:
        raise engine_failure(error, FailureClass.IMAGE_PULL, f"pulling {image}") from error


def pull_failure(image: str, message: str) -> StepError:
    """Return the failure for an engine's message about a pull.

    "denied" counts as a missing image, as Docker Hub answers so for a repository that does not exist.
    """
    registry = registry_of(image)
    if "toomanyrequests" in message.lower() or "rate limit" in message.lower():
        return InfraError(
            FailureClass.IMAGE_PULL, f"{registry} limits the rate of pulls: {message[:300]}", detail=message
        )
    if _MISSING.search(message):
        reason = f"image {image} does not exist at {registry}: {message[:300]}"
        return ConfigError(reason, failure_class=FailureClass.IMAGE_MISSING, detail=message)
    if _FORBIDDEN.search(message):
        reason = f"{registry} denied access to image {image} (missing, or needs `docker login`): {message[:300]}"
        return ConfigError(reason, failure_class=FailureClass.IMAGE_MISSING, detail=message)
    if _MALFORMED.search(message):
        return ConfigError(f"{image!r} is not an image name: {message[:300]}", failure_class=FailureClass.IMAGE_MISSING)
    if "no space left on device" in message.lower():
        return ResourceError(FailureClass.OUT_OF_DISK, f"no space left to pull {image}", detail=message)
    return InfraError(FailureClass.IMAGE_PULL, f"pulling {image} failed: {message[:300]}", detail=message)


def registry_of(image: str) -> str:
    """Return the registry host in an image's name, Docker Hub by default."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"
