"""Sandboxes of the test server of AGS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from swe_argo.steps.sandbox.ags.backend import AGSBackend, connect
from swe_argo.steps.sandbox.ags.service import forget_client
from swe_argo.steps.settings import settings
from tests.steps.sandbox.ags.server import AGSServer
from tests.steps.sandbox.envd.lab import IMAGE, EnvdLab, at_server, image_folder

AGSLab: TypeAlias = EnvdLab[AGSServer, AGSBackend]


def forget_settings() -> None:
    """What the environment said before."""
    settings.cache_clear()
    forget_client()


@contextmanager
def laboratory(folder: Path, checkout: Path) -> Iterator[AGSLab]:
    """The lab of a server of its own, which this process finds by its environment meanwhile."""
    server = AGSServer(image_folder(folder, checkout), {IMAGE: IMAGE}, quota=100)
    server.add_shared_tools()
    with (
        at_server(server, folder / "home", forget_settings),
        EnvdLab(server, connect, "ags", 30.0, {}) as lab,
    ):
        yield lab
