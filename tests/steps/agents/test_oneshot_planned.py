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
def _settings_are_read_anew() -> Iterator[None]:
    yield
    settings.cache_clear()


def planned(
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
        made = plan(spec)
    return Instance.from_bytes(open_store(spec.store).get(key(Instance, "r", ID))), made.notices


@needs_isolation
def test_a_prompt_of_edits_has_its_windows_and_says_what_it_gives_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = [{"docid": "slugkit/ascii.py", "score": 1.0}, {"docid": "README.md", "score": 0.5}]
    shown, notices = planned(tmp_path, monkeypatch, {"prompt_style": "style-2-edits-only"}, hits=hits)
    assert [(file.path, bool(file.windows)) for file in shown.context or []] == [("slugkit/ascii.py", True)]
    assert any("which lines the reference patch touches" in notice for notice in notices)


@needs_isolation
def test_no_other_style_knows_anything_of_the_reference_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [{"docid": "slugkit/slug.py", "score": 1.0}, {"docid": "README.md", "score": 0.5}]
    shown, notices = planned(tmp_path, monkeypatch, {}, hits=hits)
    assert [(file.path, file.text, file.windows) for file in shown.context or []] == [
        ("slugkit/slug.py", None, None),
        ("README.md", None, None),
    ]
    assert not any("reference patch" in notice or "no retrieved files" in notice for notice in notices)


@needs_isolation
def test_rows_without_retrieved_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, notices = planned(tmp_path, monkeypatch, {})
    assert shown.context is None
    assert any(notice.startswith("1 of 1 rows name no retrieved files") for notice in notices)


@needs_isolation
def test_only_agent_oneshot_is_given_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, _ = planned(tmp_path, monkeypatch, {"name": "r2egym"}, hits=[{"docid": "slugkit/slug.py"}])
    assert shown.context is None


@needs_isolation
def test_an_instruction_template_is_refused_for_a_published_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.j2").write_text("{{ problem_statement }}")
    with pytest.raises(ConfigError, match=r"agent\.instruction_template"):
        planned(tmp_path, monkeypatch, {"instruction_template": str(tmp_path / "mine.j2")})
