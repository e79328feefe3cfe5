"""Sandboxes of the test server of E2B."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from swe_argo.steps.sandbox.e2b.backend import E2BBackend, connect
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer
from tests.steps.sandbox.envd.lab import IMAGE, EnvdLab, at_server, image_folder

E2BLab: TypeAlias = EnvdLab[E2BServer, E2BBackend]


@contextmanager
def laboratory(folder: Path, checkout: Path) -> Iterator[E2BLab]:
    """The lab of a server of its own, which this process finds by its environment meanwhile."""
    server = E2BServer(image_folder(folder, checkout), {template_name(IMAGE): IMAGE})
    with (
        at_server(server, folder / "home", settings.cache_clear),
        EnvdLab(server, connect, "e2b", 3.0, {"creations_per_second": 1000}) as lab,
    ):
        yield lab
