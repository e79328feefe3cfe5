"""A store of runs and its viewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.server import Address, viewing

TAGS = {"tags": ["team/a", "paper"]}
MORE: dict[str, Any] = {"hostile": True, "log_lines": 10, "spec": TAGS, "workers": 3}
NIGHTS = ("nightly-1", "nightly-2", "nightly-3")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Three nights of one spec, a run of another agent with three attempts and hostile texts, and an unfinished one."""
    folder: Path = tmp_path_factory.mktemp("view") / "results"
    store = open_store(str(folder), create=True)
    runs = [
        *(Synthetic(name, 6, seed=n, created_at=f"2026-11-{14 + n}T22:00:00Z") for n, name in enumerate(NIGHTS)),
        Synthetic("other", 5, 3, agent="mini-swe-agent", model="lab/<i>model-2", **MORE),
    ]
    for run in runs:
        run.write(store)
        write_report(store, run.run_id)
    Synthetic("half-done", 8, mix={"resolved": 0.4, "not_run": 0.5, "failed": 0.1}, seed=4, workers=2).write(store)
    return store


@pytest.fixture(scope="session")
def viewer(store: Store) -> Iterator[Address]:
    with viewing(store) as address:
        yield address
