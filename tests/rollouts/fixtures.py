"""Fixtures for rollouts on backend local, to be imported by a folder's conftest, and their cancellation."""

from __future__ import annotations

import asyncio
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
    return plan_rows(tmp_path_factory.mktemp("rows") / "store")


@pytest.fixture
def sandboxes(isolation: None) -> Iterator[Callable[[], list[str]]]:
    """List this process's sandboxes of backend local; there must be none at the end."""
    example = private_folder()
    example.rmdir()
    pattern = example.name.rpartition("-")[0] + "-*"

    def now() -> list[str]:  # grading has other private folders
        return sorted(folder.name for folder in example.parent.glob(pattern) if (folder / "testbed").exists())

    yield now
    assert not now()


async def cancel_where(
    rollout: asyncio.Task[object], where: str, reached: asyncio.Event, sandboxes: Callable[[], object]
) -> None:
    """Cancel a rollout and wait for its end: while its sandbox is made, while it is graded, or after ``reached``."""
    if where == "making its sandbox":
        while not sandboxes():
            await asyncio.sleep(0)
    else:
        await reached.wait()
        await asyncio.sleep(0.5)
    if where == "grading":
        while sandboxes():  # without one, it is graded
            await asyncio.sleep(0.01)
    rollout.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout
