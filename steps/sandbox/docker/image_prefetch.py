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


class ImageKeeper:
    """Pulls a run's images in the order of its units, and removes the pulled ones after their last unit.

    It only saves time: a unit's own create pulls a missing image and reports its faults; errors here are ignored.
    ``budget_bytes`` bounds the images of this run; None is ``default_budget``. Images that were present before
    ``start`` are never removed; neither are those in use, or still needed.
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
        self._budget_is_given = budget_bytes is not None
        self._keep = keep
        self._given_api = api
        self._units = Counter(names)
        self._ahead = deque(dict.fromkeys(names))
        self._finished: deque[str] = deque()
        self._before: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="images", daemon=True)

    def start(self) -> None:
        """Record the present images and start pulling, in a thread. Raises ConfigError if no engine answers."""
        api = self._api
        if not self._budget_is_given:
            self._budget = default_budget(api)
        self._before = {name for name in self._units if _is_here(api, name)}
        self._thread.start()

    def ready(self, image: str) -> bool:
        """Return whether an image is known to be present: a hint which unit to start first."""
        name = through_registry(image, self._registry)
        with self._change:
            return name in self._before or name in self._sizes

    def finish_unit(self, image: str) -> None:
        """Record the end of a unit of this image. After the last one the thread removes the image."""
        name = through_registry(image, self._registry)
        with self._change:
            self._units[name] -= 1
            if self._units[name] <= 0:
                self._finished.append(name)
                self._change.notify()

    def close(self, timeout_s: float = 30.0) -> None:
        """Stop, and remove every image this run pulled, so that an interrupted run leaves none behind."""
        with self._change:
            self._closed = True
            self._change.notify()
        if not self._thread.ident:
            return
        self._thread.join(timeout_s)  # an unfinished pull is left to the engine, and its image to the next run
        if not self._thread.is_alive():
            for name in self._units:
                self._remove(name)

    @property
    def _api(self) -> APIClient:
        return self._given_api or connect_engine().api

    def _work(self) -> None:
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
        """Return the next task: a removal first, as it makes room; else the next image, if it fits."""
        if self._finished:
            return self._finished.popleft(), False
        while self._ahead:
            name = self._ahead[0]
            if name in self._before or self._units[name] <= 0:
                self._ahead.popleft()
                continue
            used = sum(self._sizes.values())
            if self._sizes and used + self._typical() > self._budget:
                break
            return self._ahead.popleft(), True
        return "", False

    def _typical(self) -> int:
        sizes = [size for size in self._sizes.values() if size]
        return sum(sizes) // len(sizes) if sizes else IMAGE_BYTES

    def _pull(self, name: str) -> None:
        try:
            size = int(ensure_image(self._api, name, self._platform, _PATIENCE)["Size"])
        except _FAILURES:
            return
        with self._change:
            self._sizes[name] = size

    def _remove(self, name: str) -> None:
        """Remove an image this run pulled; the engine refuses while a container uses it."""
        if self._keep or name in self._before:
            return
        try:
            if _is_here(self._api, name):
                self._api.remove_image(name)
        except _FAILURES:
            return
        with self._change:
            self._sizes.pop(name, None)


def _is_here(api: APIClient, image: str) -> bool:
    try:
        return local_image(api, image) is not None
    except _FAILURES:
        return False
