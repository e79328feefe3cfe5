"""Lifecycle hooks for sandboxes of a trainer's process: an owner while it lives, and removal of leftovers."""

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
"""Sandbox spec as JSON -> its lifecycle hooks; None in a pod."""


def take_care(run: RunFile) -> None:
    """Prepare this process for sandboxes of the run: call it before each is created; it acts once per backend.

    Like a runner it removes what dead processes left, and owns pods by a Lease of its own: pods without an owner would
    be removed by other processes. In a pod, the pod is the owner. Blocks. Raises ConfigError, InfraError.
    """
    with _LOCK:
        wanted = run.spec.sandbox.model_dump_json()
        if wanted not in _TAKEN:
            remove_leftovers()
            _TAKEN[wanted] = None if settings().pod_uid else _enter(run)
        if (care := _TAKEN[wanted]) is not None:
            _tell_environment(care)


def _enter(run: RunFile) -> Care:
    """Enter the hooks until this process ends, under a run id of its own: a trainer has many processes for one run."""
    plan = Plan(run_id=f"{run.run_id}-rollouts-{secrets.token_hex(4)}", units=[])
    stack = ExitStack()
    care = stack.enter_context(care_for(run.spec.sandbox, plan))
    atexit.register(stack.close)
    return care


def _tell_environment(care: Care) -> None:
    """Set the owner of sandboxes in the environment, which grading processes inherit."""
    if any(os.environ.get(name) != value for name, value in care.env.items()):
        os.environ.update(care.env)
        settings.cache_clear()
