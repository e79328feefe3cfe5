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
    files = {"keep.txt": "as it is\n", "edit.txt": "before\n", "gone.txt": "gone\n", "old/inner.txt": "gone, too\n"}
    for name, text in (files | {"turns/x": "x"}).items():
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_text(text)
    (folder / "data" / "link").symlink_to("keep.txt")
    backend = LocalBackend(tmp_path / "images", isolated=True)
    with ExitStack() as stack:

        def new() -> Sandbox:
            request = SandboxRequest("test", "test", deadline_s=600, network=False, isolated=True, disk_mb=256)
            box = backend.create(request)
            stack.callback(backend.destroy, box)
            return box

        yield new
