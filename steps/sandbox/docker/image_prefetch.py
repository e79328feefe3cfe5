"""Prefetch of images within a disk budget; each image is removed after its last unit."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

import requests
from docker import APIClient
from docker.errors import DockerException

from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.docker.disk import IMAGE_BYTES, default_budget
from swe_argo.steps.sandbox.docker.engine import EngineRetries, connect_engine
from swe_argo.steps.sandbox.docker.images import ensure_image, local_image

_PATIENCE = EngineRetries(attempts=2, first_s=2.0)
_FAILURES = (StepError, DockerException, requests.RequestException, OSError)


class ImagePrefetch:
    """A prefetch of a run's images, in the order of its units; pulled images are removed after their last unit.

    It only saves time: errors here are ignored, as ``DockerBackend.create`` pulls a missing image and reports failures.
    ``budget_bytes`` limits the images pulled by this run; None is ``default_budget``. ``keep``: pulled images stay.
    Images that were present before ``start``, are in use or are still needed are never removed.
    """

    def __init__(
        self,
        images_in_order: Iterable[str],
        budget_bytes: int | None,
        keep: bool,
        registry: str | None = None,
        platform: str = "linux/amd64",
        *,
        api: APIClient | None = None,
    ) -> None:
        names = [through_registry(image, registry) for image in images_in_order]
        self._registry = registry
        self._platform = platform
        self._budget = budget_bytes or 0
        self._has_budget = budget_bytes is not None
        self._keep = keep
        self._custom_api = api
        self._units = Counter(names)  # image -> units that still need it
        self._to_pull = deque(dict.fromkeys(names))  # images to pull
        self._finished: deque[str] = deque()  # images to remove
        self._preexisting: set[str] = set()
        self._sizes: dict[str, int] = {}  # pulled image -> bytes
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="images", daemon=True)

    def start(self) -> None:
        """Record the present images and start a thread that pulls. Raises ConfigError if no engine answers."""
        api = self._api
        if not self._has_budget:
            self._budget = default_budget(api)
        self._preexisting = {name for name in self._units if _is_present(api, name)}
        self._thread.start()

    def is_present(self, image: str) -> bool:
        """Return whether an image is known to be present, as a hint for the order of units."""
        name = through_registry(image, self._registry)
        with self._change:
            return name in self._preexisting or name in self._sizes

    def finish_unit(self, image: str) -> None:
        """Record the end of a unit of this image; after the last unit the thread removes the image."""
        name = through_registry(image, self._registry)
        with self._change:
            self._units[name] -= 1
            if self._units[name] <= 0:
                self._finished.append(name)
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
                name, pulling = self._next()
                while not name and not self._closed:
                    self._change.wait()
                    name, pulling = self._next()
                if self._closed:
                    return
            if pulling:
                self._pull(name)
            else:
                self._remove(name)

    def _next(self) -> tuple[str, bool]:
        """Return the next image, and whether to pull it (else remove it); ("", False) if there is nothing to do now.

        Removals come first, as they free disk. One image may be pulled whatever the budget.
        """
        if self._finished:
            return self._finished.popleft(), False
        while self._to_pull:
            name = self._to_pull[0]
            if name in self._preexisting or self._units[name] <= 0:
                self._to_pull.popleft()
                continue
            used = sum(self._sizes.values())
            if self._sizes and used + self._typical_size() > self._budget:
                break
            return self._to_pull.popleft(), True
        return "", False

    def _typical_size(self) -> int:
        """Return the average size of the pulled images; IMAGE_BYTES before the first."""
        sizes = [size for size in self._sizes.values() if size]
        return sum(sizes) // len(sizes) if sizes else IMAGE_BYTES

    def _pull(self, name: str) -> None:
        """Pull an image and record its size; an image that fails is left to ``create``."""
        try:
            size = int(ensure_image(self._api, name, self._platform, _PATIENCE)["Size"])
        except _FAILURES:
            return
        with self._change:
            self._sizes[name] = size

    def _remove(self, name: str) -> None:
        """Remove an image this run pulled, unless a container uses it."""
        if self._keep or name in self._preexisting:
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
