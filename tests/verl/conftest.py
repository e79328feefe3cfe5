from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steps.contracts.run_spec import RunSpec
from steps.host.folders import find_orphans, private_folder
from steps.plan import plan
from steps.sandbox.local import bubblewrap

if TYPE_CHECKING:
    from tests.verl.loops import Loops

AGENT = Path(__file__).parents[1] / "workflows" / "api" / "scripted_agent.py"
INSTANCES = ["mini__slugkit-1", "mini__slugkit-2"]


def plan_rows(folder: Path, backend: str = "local", **fields: object) -> str:
    """The store of an export: a run's first files, of two issues of mini."""
    spec = {
        "run_id": "rows",
        "store": str(folder),
        "select": {"instance_ids": INSTANCES},
        "agent": {"name": f"{AGENT}:Scripted", "timeout_s": 600, "command_timeout_s": 20},
        "sandbox": {"backend": backend},
        **fields,
    }
    plan(RunSpec.model_validate(spec))
    return str(folder)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Such a store, for backend local."""
    if (why := bubblewrap.probe()) is not None:
        pytest.skip(why)
    return plan_rows(tmp_path_factory.mktemp("rows") / "store")


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Loops:
    from tests.verl.loops import Loops

    return Loops(tmp_path_factory.mktemp("loops"))


@pytest.fixture
def sandboxes() -> Iterator[SandboxFolders]:
    """The folders of local sandboxes: there are none left when the test is over."""
    folders = SandboxFolders()
    yield folders
    assert not folders.now()


class SandboxFolders:
    """Which folders of local sandboxes of this process there are."""

    def __init__(self) -> None:
        example = private_folder()
        example.rmdir()
        self._parent, self._prefix = example.parent, example.name.rpartition("-")[0]

    def now(self) -> list[str]:
        """Those that have a repository: others are files of grading."""
        found = self._parent.glob(f"{self._prefix}-*")
        return sorted(folder.name for folder in found if (folder / "testbed").exists())


__all__ = ["find_orphans"]
