"""The bridge's client of a skyrl server: requests, their futures, and failures in Tinker's words."""

from __future__ import annotations

from typing import Any

import httpx

Json = dict[str, Any]
CALL_TIMEOUT_S = 330.0
"""Timeout of a call; skyrl answers a future within 300 s, or asks to poll again."""


class RefusedError(Exception):
    """An answer other than 200; nothing was started."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class FailedError(Exception):
    """A request that was accepted and failed. ``category``: user or server."""

    def __init__(self, detail: str, category: str) -> None:
        super().__init__(detail)
        self.category = category


class Upstream:
    """``base_model``: the server's own name of the base model."""

    def __init__(self, url: str, base_model: str) -> None:
        self.base_model = base_model
        # No connection is kept open: none could be closed after the bridge's thread has ended.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(
            base_url=f"{url}/api/v1/", timeout=CALL_TIMEOUT_S, trust_env=False, limits=limits
        )

    async def post(self, path: str, /, **body: Any) -> Json:
        response = await self._client.post(path, json=body)
        if response.status_code != httpx.codes.OK:
            raise RefusedError(response.status_code, _detail(response))
        return dict(response.json())

    async def submit(self, path: str, /, **body: Any) -> str:
        return str((await self.post(path, **body))["request_id"])

    async def result(self, request_id: str) -> Json:
        while True:
            response = await self._client.post("retrieve_future", json={"request_id": request_id})
            if response.status_code == httpx.codes.OK:
                return dict(response.json() or {})
            if response.status_code != httpx.codes.REQUEST_TIMEOUT:
                user = response.status_code < httpx.codes.INTERNAL_SERVER_ERROR
                raise FailedError(_detail(response), "user" if user else "server")

    async def submit_and_wait(self, path: str, /, **body: Any) -> Json:
        return await self.result(await self.submit(path, **body))


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return str(response.text)
