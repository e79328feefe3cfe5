"""Lookup of a run in its store by name, and the errors for a missing run or report."""

from __future__ import annotations

import difflib
import shlex
from typing import TypeVar

from swe_argo.steps.contracts.record import Record, key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store.protocol import Store

R = TypeVar("R", bound=Record)


def read_record(store: Store, kind: type[R], run: str) -> R:
    """Return a record that every run has. Raises ConfigError if there is no such run, or the file is unreadable."""
    name = key(kind, run)
    try:
        return kind.from_bytes(store.get(name))
    except FileNotFoundError:
        raise missing_run_error(store, run) from None
    except ValueError:  # includes pydantic's errors
        raise ConfigError(f"{store.locate(name)} is broken or from another version of swe-argo", field="run") from None


def missing_run_error(store: Store, run: str) -> ConfigError:
    """Return the error for a missing run."""
    # Suggest at most two names that are alike, whatever their case.
    names = (*store.folders("runs/"), *store.folders("trainings/"))
    spelt = {name.lower(): name for name in names if name != run}  # this very folder may exist without a run
    near = difflib.get_close_matches(run.lower(), spelt, 2, 0.75)
    hint = f" (did you mean {' or '.join(spelt[name] for name in near)}?)" if near else ""
    message = f"there is no run {run!r} in {store.url}{hint}; swe-argo runs{store_flag(store)} lists them"
    return ConfigError(message, field="run")


def missing_report_error(store: Store, run: str) -> ConfigError:
    """Return the error for a run without a report."""
    return ConfigError(f"run {run!r} has no report yet: swe-argo report {run}{store_flag(store)}", field="run")


def store_flag(store: Store) -> str:
    """Return " --store URL" for a suggested command; empty for the default store."""
    return "" if store.url == RunSpec().store else f" --store {shlex.quote(store.url)}"
