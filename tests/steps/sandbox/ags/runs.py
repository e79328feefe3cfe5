"""Runs of the bundled dataset whose sandboxes the test server makes."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from tests.steps.sandbox.ags.server import AGSServer
from tests.workflows.command import QUICK

BACKEND = """
from swe_argo.steps.sandbox.ags.backend import connect
from swe_argo.steps.sandbox.ags.hooks import run_hooks
from swe_argo.steps.sandbox.ags.readiness import ready

mini_images = "folders"  # the test server has them
"""
"""A backend of one's own that is ags, for a dataset whose images only the test server has."""


class AGSRuns:
    """A folder with a store, a home and a server that holds the images of QUICK."""

    def __init__(self, folder: Path, quota: int = 10) -> None:
        images = image_by_id("mini")
        mini.prepare(folder / "home" / "images", {name: images[name] for name in QUICK})
        self.server = AGSServer(folder / "home" / "images", {image: image for image in images.values()}, quota)
        self.server.add_shared_tools()
        (folder / "mini_ags.py").write_text(BACKEND, "utf-8")
        self.backend = ["--backend", f"{folder / 'mini_ags.py'}:connect", "--no-solve-network"]
        self.store = str(folder / "store")
        self.env = {**self.server.variables, "E2B_API_KEY": "", "SWE_ARGO_HOME": str(folder / "home")}

    @property
    def orphans(self) -> list[str]:
        """The sandboxes that are still there."""
        return [machine.metadata["name"] for machine in self.server.machines.list_all()]
