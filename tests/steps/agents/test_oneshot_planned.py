"""What plan makes of retrieved files: what an agent is shown, and what a person is told."""

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
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plan import plan
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.model_server import Answer, model_server, play

ID = "mini__slugkit-1"
needs_isolation = pytest.mark.skipif(bubblewrap.probe() is not None, reason=f"{bubblewrap.probe()}")


@pytest.fixture(autouse=True)
def _clear_settings() -> Iterator[None]:
    yield
    settings.cache_clear()


def plan_instance(
    folder: Path, monkeypatch: pytest.MonkeyPatch, agent: dict[str, Any], **columns: Any
) -> tuple[Instance, list[str]]:
    """The instance as its agent gets it, and the plan's notices."""
    (row,) = (row for row in load.load("mini", "test").rows if row["instance_id"] == ID)
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps(row | columns) + "\n")
    mini.prepare(folder / "images", {ID: row["image"]})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    settings.cache_clear()
    with model_server(play(Answer("Ready."))) as server:
        spec = RunSpec.model_validate(
            {
                "run_id": "r",
                "dataset": str(rows),
                "store": str(folder / "store"),
                "agent": {"name": "oneshot", "model": "openai/tester"} | agent,
                "llm": {"base_url": server.url},
                "sandbox": {"local": {"images": str(folder / "images")}},
            }
        )
        result = plan(spec)
    return Instance.from_bytes(open_store(spec.store).get(key(Instance, "r", ID))), result.notices


@needs_isolation
def test_edits_style_notes_patch_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [{"docid": "slugkit/ascii.py", "score": 1.0}, {"docid": "README.md", "score": 0.5}]
    instance, notices = plan_instance(tmp_path, monkeypatch, {"prompt_style": "style-2-edits-only"}, hits=hits)
    assert [(file.path, bool(file.windows)) for file in instance.context or []] == [("slugkit/ascii.py", True)]
    assert any("which lines the reference patch touches" in notice for notice in notices)


@needs_isolation
def test_default_style_leaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [{"docid": "slugkit/slug.py", "score": 1.0}, {"docid": "README.md", "score": 0.5}]
    instance, notices = plan_instance(tmp_path, monkeypatch, {}, hits=hits)
    assert [(file.path, file.text, file.windows) for file in instance.context or []] == [
        ("slugkit/slug.py", None, None),
        ("README.md", None, None),
    ]
    assert not any("reference patch" in notice or "no retrieved files" in notice for notice in notices)


@needs_isolation
def test_rows_without_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, notices = plan_instance(tmp_path, monkeypatch, {})
    assert instance.context is None
    assert any(notice.startswith("1 of 1 rows have no retrieved files") for notice in notices)


@needs_isolation
def test_only_oneshot_gets_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, _ = plan_instance(tmp_path, monkeypatch, {"name": "r2egym"}, hits=[{"docid": "slugkit/slug.py"}])
    assert instance.context is None


@needs_isolation
def test_oneshot_refuses_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.j2").write_text("{{ problem_statement }}")
    with pytest.raises(ConfigError, match=r"agent\.instruction_template"):
        plan_instance(tmp_path, monkeypatch, {"instruction_template": str(tmp_path / "mine.j2")})
