"""The connections of a server on an event loop, which must be closed before the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class OpenConnections:
    """Open connections; ``serve`` handles each one, ``take`` is for ``asyncio.start_server``."""

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
    ) -> None:
        self._serve = serve
        self._lines: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def __iter__(self) -> Iterator[asyncio.StreamWriter]:
        return iter(self._lines.values())

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known from its first moment: a task that is cancelled before it ran closes nothing.
        self._lines[asyncio.get_running_loop().create_task(self._serve(reader, writer))] = writer

    async def close(self, server: asyncio.Server) -> None:
        """Close the server and every connection at this end, however far it has come. Nothing else has the loop."""
        for listener in server.sockets:  # asyncio forgets a connection that it takes while its server closes
            asyncio.get_running_loop().remove_reader(listener)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # those that take a connection, too
            for task, writer in self._lines.items():
                task.cancel()
                writer.transport.abort()
            await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self), return_exceptions=True)
