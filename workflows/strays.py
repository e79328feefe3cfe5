"""Sandboxes that outlived their owners, on every backend of this machine."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

from rich.console import Console

from steps.errors import ConfigError, InfraError


def sweep(backend: str) -> None:
    """Remove every sandbox whose owner, a process of this machine, is dead. Failing at it is no failure of a run."""
    from steps.sandbox import strays

    strays.clean(strays.strays())
    if backend == "docker":
        from steps.sandbox.docker import strays as docker_strays

        with suppress(ConfigError, InfraError):
            docker_strays.clean(docker_strays.strays())


def clean(remove: bool, console: Console) -> None:
    """List strays, and remove them where ``remove``. Never touches what somebody still owns."""
    from steps.sandbox import strays

    local = strays.strays()
    for folder in local:
        console.print(f"local: {folder}", highlight=False, soft_wrap=True)
    if remove:
        strays.clean(local)
    total = len(local) + _containers(remove, console)
    if not total:
        console.print("no strays")
    else:
        console.print(f"{total} removed" if remove else f"{total} found; remove them with: swe-argo clean --yes")


def _containers(remove: bool, console: Console) -> int:
    if not find_spec("docker"):
        return 0
    from steps.sandbox.docker import strays as docker_strays

    try:
        found = docker_strays.strays()
    except (ConfigError, InfraError):  # no engine, so nothing of it runs
        return 0
    for name in found:
        console.print(f"docker: {name}", highlight=False, soft_wrap=True)
    if remove:
        docker_strays.clean(found)
    return len(found)
