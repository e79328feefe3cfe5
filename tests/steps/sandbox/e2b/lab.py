"""Sandboxes of the test server of E2B, and runs of the bundled dataset in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer
from tests.steps.sandbox.envd.lab import EnvdLab, at_server
from tests.steps.sandbox.lab import IMAGE, add_image
from tests.workflows.command import QUICK

E2BLab: TypeAlias = EnvdLab[E2BServer, E2BBackend]


@contextmanager
def laboratory(folder: Path, checkout: Path) -> Iterator[E2BLab]:
    """Yield the lab of a new server, which this process finds by its environment."""
    server = E2BServer(add_image(folder / "images", checkout), {template_name(IMAGE): IMAGE})
    with (
        at_server(server, folder / "home", [settings.cache_clear]),
        EnvdLab(server, E2BBackend, "e2b", {"creations_per_second": 1000}) as lab,
    ):
        yield lab


class E2BRuns:
    """A store, a home and a server whose templates hold the images of QUICK."""

    def __init__(self, folder: Path) -> None:
        images = image_by_id("mini")
        mini.prepare(folder / "home" / "images", {name: images[name] for name in QUICK})
        self.server = E2BServer(folder / "home" / "images", {template_name(image): image for image in images.values()})
        self.backend = ["--backend", "e2b", "--no-solve-network", "--e2b-creations-per-second", "20"]
        self.store = str(folder / "store")
        self.env = {**self.server.variables, "SWE_ARGO_HOME": str(folder / "home")}

    def solve_starts(self) -> list[str]:
        """Return the origin of each sandbox of an agent: image or snapshot."""
        control = self.server.control
        templates = [body["templateID"] for body in control.creates if body["metadata"]["role"] == "solve"]
        return ["snapshot" if template in control.snapshots else "image" for template in templates]

    def refuse_snapshots(self) -> None:
        self.server.faults.refused_snapshots = 100
