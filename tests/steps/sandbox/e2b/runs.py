"""Runs of the bundled dataset whose sandboxes the test server makes."""

from __future__ import annotations

import shutil
from pathlib import Path

from swe_argo.steps.agents.gateway.binary import find_gateway
from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer
from tests.workflows.command import QUICK


class E2BRuns:
    """A folder with a store, a home and a server, whose templates hold the images of QUICK."""

    def __init__(self, folder: Path) -> None:
        images = image_by_id("mini")
        mini.prepare(folder / "home" / "images", {name: images[name] for name in QUICK})
        self.server = E2BServer(folder / "home" / "images", {template_name(image): image for image in images.values()})
        self.backend = ["--backend", "e2b", "--no-solve-network"]
        self.store = str(folder / "store")
        self.env = {**self.server.variables, "SWE_ARGO_HOME": str(folder / "home")}

    def install_gateway(self) -> None:
        """Copy the gateway from this machine's own cache into that home, so that it is built once for all tests."""
        find_gateway("amd64")
        shutil.copytree(
            settings().home_folder / "gateway", Path(self.env["SWE_ARGO_HOME"], "gateway"), dirs_exist_ok=True
        )

    @property
    def orphans(self) -> list[str]:
        """The sandboxes that are still there."""
        return [machine.metadata["name"] for machine in self.server.machines.list_all()]
