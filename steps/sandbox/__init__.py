"""Sandboxes: one protocol, and one package per backend, chosen by name and imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from swe_argo.steps.contracts.backends import MiniImages, backend_named, is_own_backend
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, extra_hint
from swe_argo.steps.plugins import load, load_module
from swe_argo.steps.sandbox.protocol import Backend

FIELD = "sandbox.backend"


def open_backend(spec: SandboxSpec) -> Backend:
    """Connect to the spec's backend. Raises ConfigError if this machine cannot run it, InfraError if it is gone."""
    return load_backend(spec.backend)(spec)


def load_backend(name: str) -> Callable[[SandboxSpec], Backend]:
    """Return a backend's ``connect``. Raises ConfigError if it, or a package it needs, cannot be imported."""
    if not is_own_backend(name):
        return cast("Callable[[SandboxSpec], Backend]", load_part(name, "backend", "connect"))
    found = load(name, FIELD)
    if not callable(found):
        raise ConfigError(f"{name} is no backend: it must be a function connect(spec)", field=FIELD)
    return cast("Callable[[SandboxSpec], Backend]", found)


def load_part(backend: str, module: str, part: str) -> Any:
    """Return a part of a backend, or None: from the module of a custom ``connect``, or from a built-in's ``module``.

    Raises ConfigError if the import fails, and names the missing extra.
    """
    if is_own_backend(backend):
        load_backend(backend)
        return getattr(load_module(backend, FIELD), part, None)
    place = f"{backend_named(backend).package}.{module}"
    try:
        return getattr(import_module(place), part) if find_spec(place) else None
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        reason = f"{backend!r} needs the package {library}: {extra_hint(backend)}"
        raise ConfigError(reason, field=FIELD) from error


def mini_images(name: str) -> MiniImages | None:
    """Return the form in which a backend takes the bundled dataset's images; a custom one sets ``mini_images``."""
    if is_own_backend(name):
        return cast("MiniImages | None", load_part(name, "", "mini_images"))
    return backend_named(name).mini_images
