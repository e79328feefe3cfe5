"""Retrieved files in plan: what the agent gets, and what the plan notes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load, mini
from swe_argo.steps.plan import plan
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.model_server import Answer, model_server, play

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=f"{bubblewrap.probe()}")
ID = "mini__slugkit-1"
EDITS_ONLY = {"prompt_style": "style-2-edits-only"}
ASCII, SLUG, README = {"docid": "slugkit/ascii.py"}, {"docid": "slugkit/slug.py", "score": 1.0}, {"docid": "README.md"}


@pytest.fixture(autouse=True)
def _clear_settings() -> Iterator[None]:
    yield
    settings.cache_clear()


def plan_instance(
    folder: Path, monkeypatch: pytest.MonkeyPatch, agent: dict[str, Any], **columns: Any
) -> tuple[Instance, list[str]]:
    """Return the instance as its agent gets it, and the plan's notices."""
    (row,) = (row for row in load.load("mini", "test").rows if row["instance_id"] == ID)
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps(row | columns) + "\n")
    mini.prepare(folder / "images", {ID: row["image"]})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    settings.cache_clear()
    with model_server(play(Answer("Ready."))) as server:
        fields = {"run_id": "r", "dataset": str(rows), "store": str(folder / "store"), "llm": {"base_url": server.url}}
        sandbox = {"local": {"images": str(folder / "images")}}
        chosen_agent = {"name": "oneshot", "model": "openai/tester"} | agent
        spec = RunSpec.model_validate(fields | {"agent": chosen_agent, "sandbox": sandbox})
        result = plan(spec)
    return Instance.from_bytes(open_store(spec.store).get(key(Instance, "r", ID))), result.notices


@pytest.mark.parametrize(
    ("agent", "hits", "files", "note"),
    [
        (EDITS_ONLY, [ASCII, README], [("slugkit/ascii.py", True)], "which lines the reference patch touches"),
        ({}, [SLUG, README], [("slugkit/slug.py", False), ("README.md", False)], ""),
        ({}, None, None, "1 of 1 rows have no retrieved files"),
        ({"name": "r2egym"}, [SLUG], None, ""),
    ],
    ids=["edits only", "default style", "no files", "another agent"],
)
def test_plan_gives_files_to_oneshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: dict[str, Any], *, hits: Any, files: Any, note: str
) -> None:
    instance, notices = plan_instance(tmp_path, monkeypatch, agent, **({"hits": hits} if hits else {}))
    context = instance.context
    assert (None if context is None else [(file.path, bool(file.windows)) for file in context]) == files
    assert not any(file.text for file in context or [] if not file.windows)
    for words in ("which lines the reference patch touches", "rows have no retrieved files"):
        assert any(words in notice for notice in notices) is (words in note)
