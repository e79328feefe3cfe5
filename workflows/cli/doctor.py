"""What this machine can run, and what is missing, in one screen."""

from __future__ import annotations

import http.client
import os
import platform
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox.diagnosis import Diagnosis, diagnose
from swe_argo.steps.settings import settings
from swe_argo.workflows.local.machines import default_workers

HUB_S = 20.0
"""Seconds that the hub has to answer."""


def doctor(console: Console, spec: SandboxSpec) -> bool:
    """Print every check; whether at least one backend works."""
    checks = dict(_checks(spec))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, check in checks.items():
        mark = {True: Text("yes", style="green"), False: Text("no", style="red"), None: Text("-", style="dim")}
        detail = Text(check.detail)
        if check.mend:
            detail.append(f"\n{check.mend}", style="dim")
        table.add_row(Text(name, style="bold"), mark[check.well], detail)
    console.print(table)
    return any(check.well for name, check in checks.items() if name.startswith("backend"))


def _checks(spec: SandboxSpec) -> Iterator[tuple[str, Diagnosis]]:
    yield "machine", _machine()
    yield "python", Diagnosis(sys.version_info >= (3, 11), platform.python_version())
    git = shutil.which("git")
    mend = "" if git else "install git: every repository is a checkout"
    yield "git", Diagnosis(bool(git), git or "not found", mend)
    for backend in dict.fromkeys((*BACKENDS, spec.backend)):
        yield f"backend {backend}", diagnose(backend, spec)
    yield "argo", _argo(spec)
    yield "disk", _disk()
    yield "home", _home()
    yield "hub", _hub()
    for extra, module, use in (
        ("s3", "boto3", "stores in buckets"),
        ("models", "openai", "agents that ask a model"),
        ("mini-swe-agent", "minisweagent", "the agent of that name"),
        ("tinker", "tinker", "swe-argo proxy and train, and numpy for the reader of samples"),
        ("wandb", "wandb", "figures of trainings at Weights & Biases"),
        ("view", "uvicorn", "runs in a browser (swe-argo view)"),
        ("notebook", "pandas", "data frames of runs in Python"),
    ):
        there = find_spec(module) is not None
        yield extra, Diagnosis(there, use, "" if there else f"pip install 'swe-argo[{extra}]'")


def _machine() -> Diagnosis:
    cores, name = os.cpu_count() or 1, f"{platform.system()} {platform.machine()}"
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    detail = f"{name}, {cores} cores{memory}; by default --workers {default_workers()}"
    reference = platform.system() == "Linux" and platform.machine() == "x86_64"
    mend = "the reference is Linux x86-64: here docker runs images by emulation, and local has no isolation"
    return Diagnosis(reference or None, detail, "" if reference else mend)


def _argo(spec: SandboxSpec) -> Diagnosis:
    """Whether ``submit`` would find what it needs: asked once, for a cluster that is away has been told already."""
    if find_spec("kubernetes") is None:
        return Diagnosis(None, "the client is not installed", "pip install 'swe-argo[kubernetes]'")
    from swe_argo.workflows.argo import chart
    from swe_argo.workflows.argo.engines import open_engine

    try:
        with closing(open_engine(spec.kubernetes)) as engine:
            notes = engine.fitness()
            there = chart.read(engine)
    except ConfigError as error:
        return Diagnosis(None, error.reason)
    except StepError as error:
        return Diagnosis(False, error.reason)
    runs = f", runs go to {there.store}" if there else ""
    return Diagnosis(True, f"the pipeline is in {engine.where}{runs}", "; ".join(notes))


def _hub() -> Diagnosis:
    """Whether datasets can be had by their ids: the package is here, and the hub answers, whatever it says."""
    if find_spec("datasets") is None:
        return Diagnosis(False, "datasets by hub id", "pip install 'swe-argo[hub]'")
    address = settings().hf_endpoint
    try:
        urllib.request.urlopen(address, timeout=HUB_S).close()  # noqa: S310 - whatever the person set
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        mend = "set HF_ENDPOINT to a mirror or HF_HUB_OFFLINE=1 to use the cache; mini and local files need no hub"
        return Diagnosis(False, f"{address} does not answer: {reason}", mend)
    return Diagnosis(True, f"datasets by id, from {address}")


def _home() -> Diagnosis:
    """Whether images for backend local can be kept: tried, for rights do not tell (/proc)."""
    try:
        folder = settings().local_images
    except ConfigError as error:
        return Diagnosis(False, error.reason.removeprefix("home: "))
    try:
        tempfile.TemporaryFile(dir=_nearest(folder)).close()
    except OSError as error:
        mend = "set SWE_ARGO_HOME to a folder that can be written"
        return Diagnosis(False, f"cannot write to {folder}: {error.strerror}", mend)
    return Diagnosis(True, f"images for local go to {folder}")


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that there is. Raises PermissionError where that cannot be seen."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _disk() -> Diagnosis:
    store = settings().store or RunSpec().store
    free = shutil.disk_usage(".").free / 2**30
    detail = f"{free:.0f} GiB free here; runs go to {store}"
    return Diagnosis(free > 2, detail, "" if free > 2 else "a run needs at least 2 GiB")
