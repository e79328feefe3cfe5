from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[[], Sandbox]]:
    """Makes fresh machines of one image."""
    if reason := bubblewrap.probe():
        pytest.skip(reason)
    folder = tmp_path / "images" / "test" / "testbed"
    (folder / "data" / "old").mkdir(parents=True)
    (folder / "data" / "keep.txt").write_text("as it is\n")
    (folder / "data" / "edit.txt").write_text("before\n")
    (folder / "data" / "gone.txt").write_text("gone\n")
    (folder / "data" / "old" / "inner.txt").write_text("gone, too\n")
    (folder / "data" / "turns").mkdir()
    (folder / "data" / "turns" / "x").write_text("x")
    (folder / "data" / "link").symlink_to("keep.txt")
    backend = LocalBackend(tmp_path / "images", isolated=True)
    with ExitStack() as stack:

        def new() -> Sandbox:
            box = backend.create(
                SandboxRequest(name="test", image="test", deadline_s=600, network=False, isolated=True, disk_mb=256)
            )
            stack.callback(backend.destroy, box)
            return box

        yield new
