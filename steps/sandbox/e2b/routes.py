"""Creating and listing sandboxes by the API routes that a service has: current ones, or those of older servers.

Up to 2.50 the SDK created sandboxes by ``POST /sandboxes``, and compatible clouds still do (CubeSandbox, Aliyun,
Huawei); the current one has only ``/v2/sandboxes``. The routes of a service are probed, never derived from its name.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from e2b import NotFoundException, Sandbox, SandboxException, SandboxInfo, SandboxQuery
from e2b.api import handle_api_exception
from e2b.api.client.api.sandboxes import get_sandboxes, post_sandboxes, post_v2_sandboxes
from e2b.api.client.models import NewSandbox, NewSandboxV2
from e2b.api.client.types import UNSET, Response
from e2b.api.client_sync import get_api_client
from e2b.connection_config import ConnectionConfig
from e2b.retry import parse_retry_after
from packaging.version import Version
from tenacity import Retrying

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.sandbox.e2b.creation import NotNowError
from swe_argo.steps.sandbox.e2b.service import account_id, call_service, kill_sandbox, service_options
from swe_argo.steps.sandbox.envd.failures import retrying
from swe_argo.steps.settings import settings

_CREATE, _LIST = "create", "list"
_MISSING_ROUTE = (404, 405)
_LATER = frozenset({409, 429, 502, 503, 504})
"""Statuses of a request that may be accepted later; 409: an earlier try at it is still running."""
_REMEMBER_S = 86_400.0
"""Seconds, a day, after which a service is probed again: it may have been upgraded."""


def make_sandbox(
    template: str, *, life_s: int, name: str, metadata: dict[str, str], network: bool, idempotency_key: str, again: bool
) -> Sandbox:
    """Try once to create a sandbox. Raises NotNowError, or the SDK's errors.

    The SDK's own ``create`` does not expose the headers of a refusal.

    ``again``: an earlier try may have made a sandbox and lost the answer. The current route detects that by the key;
    with the older one such a sandbox is removed first, found by its name.
    """
    if not _is_old(_CREATE):
        try:
            return _make(template, life_s, metadata, network=network, idempotency_key=idempotency_key)
        except SandboxException as error:
            if not _lacks_create(error):
                raise
            _remember(_CREATE)
    if again:
        for info in list_sandboxes({"name": name}):
            kill_sandbox(info.sandbox_id)
    return _make_by_old_route(template, life_s, metadata, network=network)


def kill_named(name: str) -> None:
    """Remove any sandbox with a name, for which no id is known. Raises InfraError, ConfigError, both soon."""
    for info in list_sandboxes({"name": name}, patience=retrying(attempts=2)):
        kill_sandbox(info.sandbox_id)


def list_sandboxes(
    metadata: dict[str, str], limit: int | None = None, patience: Retrying | None = None
) -> Iterator[SandboxInfo]:
    """List the account's sandboxes with all of ``metadata``, at most ``limit``. Raises ConfigError, InfraError."""
    doing = "listing the sandboxes of E2B"
    if not _is_old(_LIST):
        pages = Sandbox.list(query=SandboxQuery(metadata=metadata), limit=limit or 100, **service_options())
        try:
            while pages.has_next:
                yield from call_service(lambda: _page(pages), FailureClass.SANDBOX_LOST, doing, patience)
                if limit:
                    return
        except _NoSuchRouteError:
            _remember(_LIST)
        else:
            return
    listed = call_service(lambda: _list_by_old_route(metadata), FailureClass.SANDBOX_LOST, doing, patience)
    yield from listed[:limit]


class _NoSuchRouteError(Exception):
    """The service has no such route."""


def _page(pages: Any) -> list[SandboxInfo]:
    try:
        return list(pages.next_items())
    except SandboxException as error:
        if _status(error) in _MISSING_ROUTE:
            raise _NoSuchRouteError from error
        raise


def _lacks_create(error: SandboxException) -> bool:
    """Return whether the route is missing, not the template: a request that makes nothing tells them apart."""
    if _status(error) != 404:
        return _status(error) == 405
    client = get_api_client(ConnectionConfig(**service_options()))
    return client.get_httpx_client().post("/v2/sandboxes", json={}).status_code in _MISSING_ROUTE


def _status(error: SandboxException) -> int | None:
    return 404 if isinstance(error, NotFoundException) else getattr(error, "status_code", None)


def _make(template: str, life_s: int, metadata: dict[str, str], *, network: bool, idempotency_key: str) -> Sandbox:
    body = NewSandboxV2(
        template_id=template,
        timeout=life_s,
        auto_pause=False,
        auto_pause_memory=UNSET,
        allow_internet_access=network,
        metadata=metadata,
        env_vars={},
    )
    client = get_api_client(ConnectionConfig(**service_options()))
    return _client_of(post_v2_sandboxes.sync_detailed(body=body, client=client, idempotency_key=idempotency_key))


def _make_by_old_route(template: str, life_s: int, metadata: dict[str, str], *, network: bool) -> Sandbox:
    body = NewSandbox(
        template_id=template,
        timeout=life_s,
        auto_pause=False,
        secure=True,  # these servers give a token for the machine's own port only on request
        allow_internet_access=network,
        metadata=metadata,
    )
    client = get_api_client(ConnectionConfig(**service_options()))
    return _client_of(post_sandboxes.sync_detailed(body=body, client=client))


def _client_of(answer: Response[Any]) -> Sandbox:
    """Return the SDK's client of a new sandbox, as its own ``create`` does."""
    if answer.status_code >= 300:
        error = handle_api_exception(answer)
        if _may_come_again(answer):
            raise NotNowError(error, parse_retry_after(answer.headers.get("Retry-After")) or 0.0) from error
        raise error
    made: Any = answer.parsed
    headers = {"E2b-Sandbox-Id": made.sandbox_id, "E2b-Sandbox-Port": str(ConnectionConfig.envd_port)}
    token = made.envd_access_token if isinstance(made.envd_access_token, str) else None
    if token is not None:
        headers["X-Access-Token"] = token
    return Sandbox(
        sandbox_id=made.sandbox_id,
        sandbox_domain=made.domain if isinstance(made.domain, str) else None,
        envd_version=Version(made.envd_version),
        envd_access_token=token,
        traffic_access_token=None,
        connection_config=ConnectionConfig(extra_sandbox_headers=headers, **service_options()),
    )


def _may_come_again(answer: Response[Any]) -> bool:
    """Return whether a retry may succeed, by the service's header if it sends one."""
    word = answer.headers.get("Should-Retry")
    return answer.status_code in _LATER if word is None else word.strip().lower() == "true"


def _list_by_old_route(metadata: dict[str, str]) -> list[SandboxInfo]:
    quoted = {urllib.parse.quote(key): urllib.parse.quote(value) for key, value in metadata.items()}
    answer = get_sandboxes.sync_detailed(
        client=get_api_client(ConnectionConfig(**service_options())),
        **({"metadata": urllib.parse.urlencode(quoted)} if quoted else {}),
    )
    if answer.status_code >= 300:
        raise handle_api_exception(answer)
    listed: Any = answer.parsed
    return [SandboxInfo._from_listed_sandbox(each) for each in listed]


def _is_old(route: str) -> bool:
    try:
        return time.time() - _mark(route).stat().st_mtime < _REMEMBER_S
    except OSError:
        return False


def _remember(route: str) -> None:
    """Remember an old route for all processes of this machine and account: each unit's step is a process."""
    with suppress(OSError):  # otherwise it is probed again the next time
        _mark(route).parent.mkdir(parents=True, exist_ok=True)
        _mark(route).touch()


def _mark(route: str) -> Path:
    return settings().home_folder / "e2b" / f"old-{route}-{account_id()}"
