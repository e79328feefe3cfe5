from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.comparison.baseline import last_of_same_spec
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store
from tests.steps.reports.views import LOCK, run_file

NOW = run_file("now")


def lay(store: Store, run: RunFile, complete: object = True) -> None:
    store.put(key(RunFile, run.run_id), run.to_bytes())
    if complete is not None:
        store.put(key(Summary, run.run_id), json.dumps({"complete": complete, "of": "another version"}).encode())


def day(number: int) -> str:
    return f"2026-11-{number:02d}T22:00:00+00:00"


def test_baseline_is_newest_earlier_run(store: Store) -> None:
    for number in (11, 14, 12):
        lay(store, run_file(f"of-{number}", created_at=day(number)))
    lay(store, run_file("unfinished", created_at=day(15)), complete=False)
    lay(store, run_file("without-report", created_at=day(16)), complete=None)
    lay(store, run_file("later", created_at=day(25)))
    lay(store, NOW)
    assert last_of_same_spec(store, NOW) == "of-14"


def test_baseline_of_empty_store_is_none(store: Store) -> None:
    lay(store, NOW)
    assert last_of_same_spec(store, NOW) is None


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"agent": {"name": "replay", "max_steps": 7}}, {}),
        ({"agent": {"name": "idle"}}, {}),
        ({"select": {"k": 5}}, {}),
        ({"attempts": 2}, {}),
        ({"sandbox": {"backend": "docker"}}, {}),
        ({}, {"model": "lab/model-2"}),
        ({}, {"dataset": LOCK.model_copy(update={"name": "SWE-bench/SWE-bench_Lite"})}),
        ({}, {"dataset": LOCK.model_copy(update={"split": "dev"})}),
    ],
)
def test_baseline_needs_equal_spec(store: Store, spec: dict[str, Any], fields: dict[str, Any]) -> None:
    lay(store, run_file("other", spec, created_at=day(11), **fields))
    assert last_of_same_spec(store, NOW) is None


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"run_id": "other", "workers": 3, "store": "s3://b/p", "sandbox": {"kubernetes": {"namespace": "x"}}}, {}),
        ({"dataset": "SWE-bench/SWE-bench_Verified"}, {}),
        ({}, {"dataset": LOCK.model_copy(update={"revision": "moved", "sha256": "00" * 32})}),
        ({}, {"versions": {"swebench": "6"}, "image_digests": {"a": "b"}}),
    ],
)
def test_baseline_ignores_how_fields(store: Store, spec: dict[str, Any], fields: dict[str, Any]) -> None:
    lay(store, run_file("other", spec, created_at=day(11), **fields))
    assert last_of_same_spec(store, NOW) == "other"


def test_baseline_compares_content(store: Store) -> None:
    def given_run(path: str, content: str, **fields: Any) -> RunFile:
        spec = {"agent": {"name": "given", "predictions": path}}
        return run_file(spec=spec, input_hashes={"agent.predictions": content}, **fields)

    lay(store, given_run("there.jsonl", "other", run_id="other-content", created_at=day(12)))
    assert last_of_same_spec(store, given_run("here.jsonl", "same")) is None
    lay(store, given_run("there.jsonl", "same", run_id="same-content", created_at=day(11)))
    assert last_of_same_spec(store, given_run("here.jsonl", "same")) == "same-content"
    assert last_of_same_spec(store, given_run("there.jsonl", "new")) == "other-content"


def test_baseline_skips_unreadable_runs(store: Store) -> None:
    lay(store, run_file("good", created_at=day(11)))
    lay(store, run_file("odd-report", created_at=day(12)), complete="yes")
    store.put(key(RunFile, "broken"), b"{")
    store.put(key(RunFile, "of-another-version"), b'{"run_id": "x", "new_field": 1}')
    lay(store, run_file("cut", created_at=day(13)))
    store.put(key(Summary, "cut"), b'{"complete": tr')
    lay(store, run_file("no-time", created_at="yesterday"))
    assert last_of_same_spec(store, NOW) == "good"
