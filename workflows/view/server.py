"""HTTP server of the viewer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host.listening import is_loopback, listen, url_of
from swe_argo.steps.store import Store
from swe_argo.workflows.view.app import Viewer, prepare_pages

PORT = 7676


@dataclass(frozen=True)
class ViewOptions:
    """Options of the viewer; ``token`` is required if other machines can reach it."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None


def serve(store: Store, options: ViewOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; call ``announce`` with the address when it is ready.

    Raises ConfigError if the address needs a token or cannot be listened on.
    """
    loopback = is_loopback(options.host)
    if options.token is None and not loopback:
        message = f"{options.host} lets anyone on the network read your runs: set SWE_ARGO_VIEW_TOKEN first"
        raise ConfigError(message, field="--host")
    if options.token is not None and not options.token.isascii():
        message = "the token must be ASCII: make one with `openssl rand -hex 24`"
        raise ConfigError(message, field="SWE_ARGO_VIEW_TOKEN")
    app = Viewer(store).app(options.token, loopback=loopback and options.token is None)
    with listen(options.host, options.port) as listening:
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        announce(url_of(listening))
        threading.Thread(target=prepare_pages, daemon=True).start()
        uvicorn.Server(config).run(sockets=[listening])
