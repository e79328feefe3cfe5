"""What sandboxes of a process that trains need beside: an owner while it lives, no leftovers of dead ones."""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from contextlib import ExitStack
from typing import Final

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.sandbox.care import Care, care_for
from swe_argo.steps.settings import settings
from swe_argo.workflows.local.machines import remove_leftovers

_LOCK: Final = threading.Lock()
_TAKEN: Final[dict[str, Care | None]] = {}
"""The sandboxes' spec as JSON -> their care; None in a pod."""


def take_care(run: RunFile) -> None:
    """To be called before a sandbox of this run is made; something is done once in this process for a backend.

    As a runner of ours it puts away what dead processes left, and of pods is the owner by a Lease of its own: those
    without any would be put away by others. In a pod it is the pod that owns. Blocks. Raises ConfigError, InfraError.
    """
    with _LOCK:
        wanted = run.spec.sandbox.model_dump_json()
        if wanted not in _TAKEN:
            remove_leftovers()
            _TAKEN[wanted] = None if settings().pod_uid else _enter(run)
        if (care := _TAKEN[wanted]) is not None:
            _tell_environment(care)


def _enter(run: RunFile) -> Care:
    """To be left when this process ends. A trainer has many for one run, which one holds: each is a run of its own."""
    plan = Plan(run_id=f"{run.run_id}-rollouts-{secrets.token_hex(4)}", units=[])
    stack = ExitStack()
    care = stack.enter_context(care_for(run.spec.sandbox, plan))
    atexit.register(stack.close)
    return care


def _tell_environment(care: Care) -> None:
    """Who owns sandboxes is read from the environment, by the processes that grade as well."""
    if any(os.environ.get(name) != value for name, value in care.env.items()):
        os.environ.update(care.env)
        settings.cache_clear()
