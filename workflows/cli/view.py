"""Looking at runs in a browser."""

from __future__ import annotations

from rich.console import Console

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store

EXTRA = "the viewer needs the extra view: pip install 'swe-argo[view]'"


def view(store: str, host: str, port: int, console: Console) -> None:
    """Serve the pages until Ctrl-C. Raises ConfigError."""
    try:
        from swe_argo.workflows.view.server import ViewOptions, serve
    except ImportError as error:
        raise ConfigError(f"{EXTRA} ({error})", field="view") from None
    token = settings().view_token
    options = ViewOptions(host, port, token.get_secret_value() if token else None)
    serve(open_store(store), options, lambda address: console.print(f"runs of {store}: {address}", soft_wrap=True))
