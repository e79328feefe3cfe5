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


def test_a_task_repo_gives_the_rows_of_its_split_in_order_of_their_ids(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, row("acme__anvil-3", split="dev"), splits=("test", "dev"))
    loaded = load(str(repo), "test")
    assert [each["instance_id"] for each in loaded.rows] == ["acme__anvil-1", "acme__anvil-2"]
    for found, made in zip(loaded.rows, sorted(TWO, key=lambda each: each["instance_id"]), strict=True):
        expected = normalise(made, "made")
        assert {column: found[column] for column in expected} == expected
    assert [each["instance_id"] for each in load(str(repo), "dev").rows] == ["acme__anvil-3"]


def test_swebench_itself_reads_the_same_rows(tmp_path: Path) -> None:
    from swebench.task.repo import load_task_repo

    repo = task_repo(tmp_path / "repo", *TWO)
    theirs = [normalise(each, "theirs") for each in load_task_repo(repo)]
    assert digest_rows(load(str(repo), "test").rows) == digest_rows(theirs)


def test_a_carriage_return_in_a_patch_stays(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", row(patch="a\r\nb\rc\n"))
    assert load(str(repo), "test").rows[0]["patch"] == "a\r\nb\rc\n"


def test_a_deprecated_task_is_reached_by_its_id_alone(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, row("acme__anvil-9", split="deprecated"))
    loaded = load(str(repo), "test")
    assert "acme__anvil-9" not in [each["instance_id"] for each in loaded.rows]
    everything, _ = select(loaded.rows, SelectSpec(), loaded.by_id)
    assert len(everything) == 2
    named, _ = select(loaded.rows, SelectSpec(instance_ids=["acme__anvil-9"]), loaded.by_id)
    assert [each["instance_id"] for each in named] == ["acme__anvil-9"]
    with pytest.raises(ConfigError, match="'deprecated' is never published: name its instances with --instance"):
        load(str(repo), "deprecated")


def test_an_unknown_split_is_refused_with_those_there_are(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, splits=("test", "dev"))
    with pytest.raises(ConfigError, match=r"^split: .* has no split 'train'; it has test, dev$"):
        load(str(repo), "train")


def test_a_split_without_tasks_is_refused(tmp_path: Path) -> None:
    repo = task_repo(tmp_path / "repo", *TWO, splits=("test", "dev"))
    with pytest.raises(ConfigError, match="has no rows in split 'dev'"):
        load(str(repo), "dev")


@pytest.mark.parametrize(
    ("name", "data", "said"),
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
def test_a_task_that_is_not_whole_is_refused_by_file(tmp_path: Path, name: str, data: bytes | None, said: str) -> None:
    repo = task_repo(tmp_path / "repo", row("acme__anvil-1"))
    path = repo / "tasks" / "acme__anvil-1" / name
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(ConfigError, match=said) as caught:
        load(str(repo), "test")
    assert "\n" not in caught.value.reason
