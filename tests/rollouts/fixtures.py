"""Fixtures of the tests that roll out on backend local: a folder's conftest imports those that it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from swe_argo.steps.host.folders import private_folder
from swe_argo.steps.sandbox.local import bubblewrap
from tests.rollouts.stores import plan_rows


@pytest.fixture(scope="session")
def isolation() -> None:
    if (why := bubblewrap.probe()) is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def rows(isolation: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of rows for backend local."""
    return plan_rows(tmp_path_factory.mktemp("rows") / "store")


@pytest.fixture
def sandboxes(isolation: None) -> Iterator[Callable[[], list[str]]]:
    """Which sandboxes of backend local this process has; none when the test is over."""
    example = private_folder()
    example.rmdir()
    pattern = example.name.rpartition("-")[0] + "-*"

    def now() -> list[str]:  # other private folders hold what grading reads and writes
        return sorted(folder.name for folder in example.parent.glob(pattern) if (folder / "testbed").exists())

    yield now
    assert not now()
