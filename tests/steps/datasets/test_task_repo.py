"""Rows of swebench 5 task repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.run_spec import SelectSpec
from swe_argo.steps.datasets.load import load
from swe_argo.steps.datasets.selection import select
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows, normalise
from tests.steps.datasets.sample_rows import row, task_repo

TWO = [row("acme__anvil-2", hints_text="", version="1.10"), row("acme__anvil-1", created_at="2026-01-02 03:04:05")]


def test_task_repo_rows_are_sorted_by_id(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, row("acme__anvil-3", split="dev"), splits=("test", "dev"))
    loaded = load(str(repo), "test")
    assert [item["instance_id"] for item in loaded.rows] == ["acme__anvil-1", "acme__anvil-2"]
    for loaded_row, source in zip(loaded.rows, sorted(TWO, key=lambda item: item["instance_id"]), strict=True):
        expected = normalise(source, "made")
        assert {column: loaded_row[column] for column in expected} == expected
    assert [item["instance_id"] for item in load(str(repo), "dev").rows] == ["acme__anvil-3"]


def test_task_repo_equals_swebench(tmp_path: Path) -> None:
    from swebench.task.repo import load_task_repo

    repo = task_repo(tmp_path / "repo", *TWO)
    theirs = [normalise(task, "theirs") for task in load_task_repo(repo)]
    assert digest_rows(load(str(repo), "test").rows) == digest_rows(theirs)
    repo = task_repo(tmp_path / "returns", row(patch="a\r\nb\rc\n"))
    assert load(str(repo), "test").rows[0]["patch"] == "a\r\nb\rc\n"


def test_deprecated_task_needs_its_id(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, row("acme__anvil-9", split="deprecated"))
    loaded = load(str(repo), "test")
    assert "acme__anvil-9" not in [item["instance_id"] for item in loaded.rows]
    everything, _ = select(loaded.rows, SelectSpec(), loaded.by_id)
    assert len(everything) == 2
    selected, _ = select(loaded.rows, SelectSpec(instance_ids=["acme__anvil-9"]), loaded.by_id)
    assert [item["instance_id"] for item in selected] == ["acme__anvil-9"]
    with pytest.raises(ConfigError, match="'deprecated' is never published: select its instances with --instance"):
        load(str(repo), "deprecated")


def test_unknown_split_lists_splits(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, splits=("test", "dev"))
    with pytest.raises(ConfigError, match=r"^split: .* has no split 'train'; it has test, dev$"):
        load(str(repo), "train")
    with pytest.raises(ConfigError, match="has no rows in split 'dev'"):
        load(str(repo), "dev")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("gold.patch", None, "there is no file .*/tasks/acme__anvil-1/gold.patch"),
        ("eval.sh", b"\xff", r"tasks/acme__anvil-1/eval\.sh: not UTF-8 text \(byte 1\)"),
        ("tests.json", b"[", r"tests\.json: not JSON"),
        ("tests.json", b"[]", r"tasks/acme__anvil-1/tests\.json: not an object"),
        ("tests.json", b'{"FAIL_TO_PASS": []}', "tasks/acme__anvil-1: has no column PASS_TO_PASS"),
        ("task.yaml", b"a: [", r"tasks/acme__anvil-1/task\.yaml: not YAML"),
        ("task.yaml", b"- a", r"tasks/acme__anvil-1/task\.yaml: not a table of keys"),
        ("task.yaml", b"instance_id: other", r"tasks/acme__anvil-1/task\.yaml: instance_id is 'other'"),
        (
            "task.yaml",
            b"instance_id: acme__anvil-1\nsplit: test\nrepo: a/b\nbase_commit: abc\nversion: 1.10\n",
            "tasks/acme__anvil-1: version is a number, not text: put it in quotes",
        ),
        ("../../sweb.yaml", b"splits: [test]", "does not name any datasets"),
        ("../../sweb.yaml", b"datasets: [a]\nsplits: test", "splits is not a list of names"),
    ],
)
def test_incomplete_task_names_its_file(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    repo = task_repo(tmp_path / "repo", row("acme__anvil-1"))
    path = repo / "tasks" / "acme__anvil-1" / name
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(repo), "test")
    assert "\n" not in caught.value.reason
