"""Cancelling a rollout at a moment of its life, whichever trainer plays it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


async def cancel_where(
    rollout: asyncio.Task[object], where: str, reached: asyncio.Event, sandboxes: Callable[[], object]
) -> None:
    """Cancel it and wait for its end. ``where``: making its sandbox, or grading; else half a second after ``reached``
    is set. ``sandboxes``: those there are."""
    if where == "making its sandbox":
        while not sandboxes():
            await asyncio.sleep(0)
    else:
        await reached.wait()
        await asyncio.sleep(0.5)
    if where == "grading":
        while sandboxes():  # its own is gone: it is graded
            await asyncio.sleep(0.01)
    rollout.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout
