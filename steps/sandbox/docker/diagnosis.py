"""Diagnosis of the Docker engine."""

from __future__ import annotations

from docker.errors import DockerException

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.sandbox.docker.disk import GIB, free_bytes
from swe_argo.steps.sandbox.docker.engine import connect_engine, engine_message


def diagnose(_spec: SandboxSpec) -> Diagnosis:
    """Return the engine's state. Never raises."""
    try:
        info = connect_engine().api.info()
    except ConfigError as error:
        return Diagnosis(False, error.reason.removeprefix("sandbox.backend: "))
    except (DockerException, OSError) as error:
        return Diagnosis(False, f"the Docker engine does not answer: {engine_message(error)[:200]}")
    architecture, free = info.get("Architecture", ""), free_bytes(info)
    detail = (
        f"{info.get('ServerVersion', '')}, {architecture}, {info.get('Driver', '')} at {info.get('DockerRootDir', '')}"
        + (f", {free / GIB:.0f} GiB free" if free is not None else "")
    )
    emulated = architecture not in {"x86_64", "amd64"}
    mend = "official images are linux/amd64 and run slowly here, by emulation" if emulated else ""
    return Diagnosis(True, detail, mend)
