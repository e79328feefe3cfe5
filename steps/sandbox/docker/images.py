"""Images on a Docker engine: the disk they need, pulls, and their prefetch for a run."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from platform import node
from typing import Any

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.ids import through_registry
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.docker.engine import EngineRetries, connect_engine, engine_failure, engine_message

GIB = 2**30
IMAGE_BYTES = int(1.3 * GIB)
"""Assumed unpacked size of a missing image: SWE-bench Verified's 500 take 684 GiB without shared layers, 67 with."""
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
    Raises ``pull_failure``.
    """
    local = local_image(api, image)
    if local is not None and matches_platform(local, platform):
        return local
    try:
        patience.retrying(lambda error: isinstance(error, InfraError))(_pull_once, api, image, platform)
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
    registry, short, lower = registry_of(image), message[:300], message.lower()
    if "toomanyrequests" in lower or "rate limit" in lower:
        return InfraError(FailureClass.IMAGE_PULL, f"{registry} limits the rate of pulls: {short}", detail=message)
    for pattern, reason in (
        (_MISSING, f"image {image} does not exist at {registry}"),
        (_FORBIDDEN, f"{registry} denied access to image {image} (missing, or needs `docker login`)"),
        (_MALFORMED, f"{image!r} is not an image name"),
    ):
        if pattern.search(message):
            return ConfigError(f"{reason}: {short}", failure_class=FailureClass.IMAGE_MISSING, detail=message)
    if "no space left on device" in lower:
        return ResourceError(FailureClass.OUT_OF_DISK, f"no space left to pull {image}", detail=message)
    return InfraError(FailureClass.IMAGE_PULL, f"pulling {image} failed: {short}", detail=message)


def registry_of(image: str) -> str:
    """Return the registry host in an image's name, Docker Hub by default."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def name_in_listing(name: str) -> str:
    """Return a name as the engine lists it: without Docker Hub's host, with a tag."""
    name = name.removeprefix("docker.io/").removeprefix("library/")
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def check_disk(images: Iterable[str], spec: SandboxSpec) -> list[str]:
    """Return notices about the disk for a run's user; none if no image is missing.

    Raises ConfigError if no engine answers, or if not even one missing image fits.
    """
    api = connect_engine().api
    names = {name_in_listing(through_registry(image, spec.registry)) for image in images}
    present = {name for item in api.images() for name in (*(item["RepoTags"] or ()), *(item["RepoDigests"] or ()))}
    missing = len(names - present)
    if not missing:
        return []
    will_pull, pull_bytes = f"{missing} of {len(names)} images will be pulled", missing * IMAGE_BYTES
    info = api.info()
    free = free_bytes(info)
    if free is None:
        return [f"{will_pull}; the Docker engine's free disk is unknown"]
    root = info["DockerRootDir"]
    if free < IMAGE_BYTES:
        raise ConfigError(
            f"{_gib(free)} free at {root}, but an image takes about {_gib(IMAGE_BYTES)}: free space there "
            "(docker system prune), or move the engine's data-root",
            field="sandbox.backend",
            failure_class=FailureClass.OUT_OF_DISK,
        )
    notices = [f"{will_pull}, up to {_gib(pull_bytes)}; {_gib(free)} free at {root}"]
    if spec.docker.keep_images and pull_bytes > free:
        notices.append(f"--keep-images may fill the disk: up to {_gib(pull_bytes)}, but {_gib(free)} free at {root}")
    budget = configured_budget(spec)
    if budget is not None and budget > free:
        notices.append(f"--disk-budget-gb ({_gib(budget)}) exceeds the free space at {root}: {_gib(free)}")
    return notices


def free_bytes(info: Mapping[str, Any]) -> int | None:
    """Return the free bytes at the engine's root, by its ``info``; None if that is on another (or virtual) machine."""
    root = str(info.get("DockerRootDir", ""))
    if not root or info.get("Name") != node() or not Path(root).is_dir():
        return None
    return shutil.disk_usage(root).free


def configured_budget(spec: SandboxSpec) -> int | None:
    """Return the spec's budget for images in bytes, if set."""
    return int(spec.docker.disk_budget_gb * GIB) if spec.docker.disk_budget_gb else None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


_PATIENCE = EngineRetries(attempts=2, first_s=2.0)
_FAILURES = (StepError, DockerException, requests.RequestException, OSError)


class ImagePrefetch:
    """A prefetch of a run's images, in the order of its units; pulled images are removed after their last unit.

    It only saves time: errors here are ignored, as ``DockerBackend.create`` pulls a missing image and reports failures.
    Images that were present before ``start``, are in use or are still needed are never removed.
    """

    def __init__(self, images_in_order: Iterable[str], spec: SandboxSpec, api: APIClient | None = None) -> None:
        self._spec = spec
        self._custom_api = api
        names = [through_registry(image, spec.registry) for image in images_in_order]
        self._units = Counter(names)  # image -> units that still need it
        self._to_pull = deque(dict.fromkeys(names))
        self._to_remove: deque[str] = deque()
        self._preexisting: set[str] = set()
        self._budget = 0
        self._sizes: dict[str, int] = {}  # pulled image -> bytes
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="images", daemon=True)

    def start(self) -> None:
        """Record the present images and start a thread that pulls. Raises ConfigError if no engine answers.

        The budget for images is by default half of the free space at the engine's root, or four images if unknown.
        """
        api = self._api
        budget = configured_budget(self._spec)
        if budget is None:
            free = free_bytes(api.info())
            budget = free // 2 if free is not None else 4 * IMAGE_BYTES
        self._budget = budget
        self._preexisting = {name for name in self._units if _is_present(api, name)}
        self._thread.start()

    def finish_unit(self, image: str) -> None:
        """Record the end of a unit of this image; after the last unit the thread removes the image."""
        name = through_registry(image, self._spec.registry)
        with self._change:
            self._units[name] -= 1
            if self._units[name] <= 0:
                self._to_remove.append(name)
                self._change.notify()

    def close(self, timeout_s: float = 30.0) -> None:
        """Stop the thread, and remove every image this run pulled."""
        with self._change:
            self._closed = True
            self._change.notify()
        if not self._thread.ident:
            return
        self._thread.join(timeout_s)  # after the timeout the engine finishes the pull, and the image stays
        if not self._thread.is_alive():
            for name in self._units:
                self._remove(name)

    @property
    def _api(self) -> APIClient:
        return self._custom_api or connect_engine().api

    def _work(self) -> None:
        """Pull and remove images in a thread, one at a time, until closed."""
        while True:
            with self._change:
                while not (act := self._next()) and not self._closed:
                    self._change.wait()
                if self._closed or act is None:
                    return
            act()

    def _next(self) -> Callable[[], None] | None:
        """Return the next removal or pull; None if there is nothing to do now.

        Removals come first, as they free disk. One image may be pulled whatever the budget.
        """
        if self._to_remove:
            return partial(self._remove, self._to_remove.popleft())
        while self._to_pull:
            name = self._to_pull[0]
            if name in self._preexisting or self._units[name] <= 0:
                self._to_pull.popleft()
                continue
            sizes = [size for size in self._sizes.values() if size]
            typical_size = sum(sizes) // len(sizes) if sizes else IMAGE_BYTES
            if self._sizes and sum(sizes) + typical_size > self._budget:
                break
            return partial(self._pull, self._to_pull.popleft())
        return None

    def _pull(self, name: str) -> None:
        """Pull an image and record its size; an image that fails is left to ``create``."""
        try:
            size = int(ensure_image(self._api, name, self._spec.platform, _PATIENCE)["Size"])
        except _FAILURES:
            return
        with self._change:
            self._sizes[name] = size

    def _remove(self, name: str) -> None:
        """Remove an image this run pulled, unless a container uses it."""
        if self._spec.docker.keep_images or name in self._preexisting:
            return
        try:
            if _is_present(self._api, name):
                self._api.remove_image(name)
        except _FAILURES:
            return
        with self._change:
            self._sizes.pop(name, None)


def _is_present(api: APIClient, image: str) -> bool:
    try:
        return local_image(api, image) is not None
    except _FAILURES:
        return False
