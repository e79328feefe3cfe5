"""Images on a Docker engine: lookup and pull, with permanent failures told apart from transient ones."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.docker.engine import EngineRetries, engine_failure, explanation

PULL_PATIENCE = EngineRetries(attempts=5, first_s=2.0, longest_s=30.0)

_MISSING = re.compile(
    r"manifest unknown|name unknown|manifest for .* not found|repository .* not found|repository does not exist"
    r"|no matching manifest|does not match the specified platform|not found: does not exist|: not found$",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"unauthorized|authentication required|no basic auth credentials|denied", re.IGNORECASE)
_MALFORMED = re.compile(r"invalid reference format|invalid tag format|must be lowercase", re.IGNORECASE)


def ensure_image(api: APIClient, image: str, platform: str, patience: EngineRetries = PULL_PATIENCE) -> dict[str, Any]:
    """Return the engine's description of ``image``, pulled if it is missing for ``platform``.

    Raises ConfigError (IMAGE_MISSING) if its registry reports it missing or forbidden, ResourceError if the disk is
    full, InfraError (IMAGE_PULL) for any other failure after all retries.
    """
    here = local_image(api, image)
    if here is not None and fits(here, platform):
        return here
    try:
        pull(api, image, platform, patience)
    except ConfigError as error:
        if here is None or error.failure_class is not FailureClass.IMAGE_MISSING:
            raise
        return here  # built on this machine, for this machine
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


def fits(inspected: dict[str, Any], platform: str) -> bool:
    """Return whether an image is for ``platform`` (os/architecture, without the variant)."""
    system, _, architecture = platform.partition("/")
    return [inspected.get("Os"), inspected.get("Architecture")] == [system, architecture.partition("/")[0]]


def digest(inspected: dict[str, Any]) -> str:
    """Return the registry's digest if known, else the image's own id (sha256:...)."""
    digests = inspected.get("RepoDigests") or []
    return str(digests[0]).rpartition("@")[2] if digests else str(inspected["Id"])


def pull(api: APIClient, image: str, platform: str, patience: EngineRetries = PULL_PATIENCE) -> None:
    """Pull one image, with retries and backoff unless it can never succeed. Raises as ``ensure_image``."""
    patience.retrying(lambda error: isinstance(error, InfraError))(_pull_once, api, image, platform)


def _pull_once(api: APIClient, image: str, platform: str) -> None:
    try:
        lines = api.pull(image, platform=platform, stream=True, decode=True)
        with closing(lines):
            for line in lines:
                if "error" in line:  # the engine answers 200 first and fails later
                    raise pull_failure(image, str(line["error"]))
    except APIError as error:
        raise pull_failure(image, explanation(error)) from error
    except (DockerException, requests.RequestException, OSError) as error:
        raise engine_failure(error, FailureClass.IMAGE_PULL, f"pulling {image}") from error


def pull_failure(image: str, message: str) -> StepError:
    """Return the failure for an engine's message. Docker Hub says "denied" for a missing repository, too."""
    registry = registry_of(image)
    if "toomanyrequests" in message.lower() or "rate limit" in message.lower():
        return InfraError(
            FailureClass.IMAGE_PULL, f"{registry} limits the rate of pulls: {message[:300]}", detail=message
        )
    if _MISSING.search(message):
        reason = f"image {image} does not exist at {registry}: {message[:300]}"
        return ConfigError(reason, failure_class=FailureClass.IMAGE_MISSING, detail=message)
    if _REFUSED.search(message):
        reason = f"{registry} does not give out image {image} (missing, or needs `docker login`): {message[:300]}"
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
