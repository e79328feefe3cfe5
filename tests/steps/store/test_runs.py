from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Plan
from swe_argo.steps.contracts.record import key
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store
from swe_argo.steps.store.folder import FolderStore
from swe_argo.steps.store.runs import no_report, no_run, record_of


def test_record_of_returns_record(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    plan = Plan(run_id="night", units=[])
    store.put(key(Plan, "night"), plan.to_bytes())
    store.put(key(Plan, "broken"), b"{")
    assert record_of(store, Plan, "night") == plan
    with pytest.raises(ConfigError, match=r"broken/plan\.json is broken or from another version"):
        record_of(store, Plan, "broken")
    with pytest.raises(ConfigError, match="run: there is no run 'day' in "):
        record_of(store, Plan, "day")


def test_suggested_command_names_store(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    (folder / "runs" / "Nightly-1").mkdir(parents=True)
    store = FolderStore(str(folder), create=False)
    reason = no_run(store, "nihgtly-1").reason
    assert reason.endswith(f" (did you mean Nightly-1?); swe-argo runs --store '{folder}' lists them")
    assert no_report(store, "x").reason == f"run: run 'x' has no report yet: swe-argo report x --store '{folder}'"
    assert no_run(FolderStore("results", create=False), "x").reason.endswith("; swe-argo runs lists them")
