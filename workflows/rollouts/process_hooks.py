"""Lifecycle hooks for sandboxes of a trainer's process: an owner while it lives, and removal of leftovers."""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from contextlib import ExitStack
from typing import Final

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.sandbox.hooks import RunHooks, run_hooks
from swe_argo.steps.settings import settings
from swe_argo.workflows.local.machines import remove_leftovers

_LOCK: Final = threading.Lock()
_HOOKS: Final[dict[str, RunHooks | None]] = {}
"""Sandbox spec as JSON -> its lifecycle hooks; None in a pod."""


def enter_hooks(run: RunFile) -> None:
    """Prepare this process for sandboxes of the run. Call it before creating each; it acts once per sandbox spec.

    Like a runner it removes leftovers of dead processes, and owns its pods through a Lease: other processes remove
    pods without an owner. In a pod, the pod is the owner. Blocks. Raises ConfigError if the backend is not set up,
    InfraError if it does not answer.
    """
    with _LOCK:
        sandbox_key = run.spec.sandbox.model_dump_json()
        if sandbox_key not in _HOOKS:
            remove_leftovers()
            _HOOKS[sandbox_key] = None if settings().pod_uid else _enter(run)
        if (hooks := _HOOKS[sandbox_key]) is not None:
            _set_environment(hooks)


def _enter(run: RunFile) -> RunHooks:
    """Enter the hooks until this process ends, with an own run id: a trainer has many processes for one run."""
    plan = Plan(run_id=f"{run.run_id}-rollouts-{secrets.token_hex(4)}", units=[])
    stack = ExitStack()
    hooks = stack.enter_context(run_hooks(run.spec.sandbox, plan))
    atexit.register(stack.close)
    return hooks


def _set_environment(hooks: RunHooks) -> None:
    """Set the owner of sandboxes in the environment, which grading processes inherit."""
    if any(os.environ.get(name) != value for name, value in hooks.env.items()):
        os.environ.update(hooks.env)
        settings.cache_clear()
