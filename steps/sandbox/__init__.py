"""Machines that commands run in: one protocol, one backend a module, chosen by name and imported late."""

from __future__ import annotations

from importlib import import_module

from steps.errors import ConfigError
from steps.sandbox.protocol import Backend


def open_backend(name: str) -> Backend:
    """The backend of that name (``local`` or ``docker``). Raises ConfigError where this machine cannot run it."""
    try:
        module = import_module(f"steps.sandbox.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name!r} needs the package {error.name}: pip install 'swe-argo[{name}]'", field="sandbox.backend"
        ) from error
    backend: Backend = module.connect()
    return backend
