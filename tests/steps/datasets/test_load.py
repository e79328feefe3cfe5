from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from swe_argo.steps.datasets import names
from swe_argo.steps.datasets.load import load
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families import rows
from swe_argo.steps.families.swebench import rows as swebench_rows
from tests.paths import DATA, ROOT, needs_data
from tests.steps.datasets.sample_rows import jsonl, row

REAL = {
    "verified_test": 500,
    "lite_test": 300,
    "lite_dev": 23,
    "multilingual_test": 300,
    "multimodal_dev": 102,
}


@needs_data
@pytest.mark.parametrize("name", REAL)
def test_real_rows_round_trip_as_records(name: str) -> None:
    loaded = load(str(DATA / f"swebench/{name}.parquet"), "test")
    assert len(loaded.rows) == REAL[name]
    for loaded_row in loaded.rows:
        assert all(isinstance(test, str) for tests in swebench_rows.TEST_LISTS for test in loaded_row[tests])
        answer, instance = rows.to_answer(loaded_row), rows.to_instance(loaded_row, hints=True)
        assert type(answer).from_bytes(answer.to_bytes()) == answer
        assert type(instance).from_bytes(instance.to_bytes()) == instance


@needs_data
def test_real_rows_have_known_counts() -> None:
    verified = load(str(DATA / "swebench/verified_test.parquet"), "test").rows
    assert sum(len(loaded_row["FAIL_TO_PASS"]) for loaded_row in verified) == 1516
    assert sum(len(loaded_row["PASS_TO_PASS"]) for loaded_row in verified) == 60136
    multilingual = load(str(DATA / "swebench/multilingual_test.parquet"), "test").rows
    assert sum(len(loaded_row["PASS_TO_PASS"]) for loaded_row in multilingual) == 10214
    assert sum("\r" in loaded_row["patch"] + loaded_row["test_patch"] for loaded_row in multilingual) == 2


@needs_data
def test_real_rows_can_be_graded() -> None:
    reasons = {
        name: [
            reason
            for loaded_row in load(str(DATA / f"swebench/{name}.parquet"), "x").rows
            if (reason := rows.why_not_gradeable(loaded_row))
        ]
        for name in REAL
    }
    assert not [listed for listed in reasons.values() if listed]


def test_dataset_modules_import_lightly() -> None:
    code = (
        "import sys; from swe_argo.steps.datasets import load, predictions, selection\n"
        "import swe_argo.steps.datasets.classic_rows\n"
        "print([name for name in ('pyarrow', 'datasets', 'huggingface_hub', 'swebench', 'yaml', 'docker') "
        "if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_duplicate_ids_are_all_listed(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "r.jsonl", *map(row, ["a__b-1", "a__b-2", "a__b-1", "a__b-3", "a__b-3", "a__b-3"]))
    with pytest.raises(ConfigError, match=r"r\.jsonl contains 2 ids more than once: a__b-1, a__b-3$"):
        load(str(path), "test")


def test_ids_must_differ_beyond_case(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "r.jsonl", row("a__b-1"), row("A__b-1"))
    with pytest.raises(ConfigError, match="differ only in case: A__b-1, a__b-1"):
        load(str(path), "test")


def test_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no rows"):
        load(str(jsonl(tmp_path / "r.jsonl")), "test")


@pytest.mark.parametrize("name", ["verifed", "", "a/b/c", "../nowhere", "/nowhere/at/all"])
def test_unknown_dataset_lists_forms(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(name, "test")
    assert caught.value.reason.startswith(f"dataset: unknown dataset {name!r}")
    assert names.FORMS in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize("name", ["~nobody-of-this-name/rows.jsonl", "x" * 5000, "a\0b"])
def test_invalid_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a path: ") as caught:
        load(name, "test")
    assert "\n" not in caught.value.reason


def test_missing_dataset_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no file nowhere/rows\.parquet"):
        load("nowhere/rows.parquet", "test")


def test_folder_can_be_named_like_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "SWE-bench" / "SWE-bench_Verified"
    folder.mkdir(parents=True)
    jsonl(folder / "test.jsonl", row())
    monkeypatch.chdir(tmp_path)
    assert len(load("SWE-bench/SWE-bench_Verified", "test").rows) == 1


def test_local_file_has_no_revision(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "r.jsonl", row())
    with pytest.raises(ConfigError, match=r"^revision: only hub datasets have revisions"):
        load(str(path), "test", revision="main")


def test_bundled_dataset_loads_by_name() -> None:
    loaded = load("Mini", "test")
    assert (loaded.name, loaded.revision) == ("mini", None)
    assert len(loaded.rows) >= 10
    assert len({loaded_row["repo"] for loaded_row in loaded.rows}) >= 5
    assert [reason for loaded_row in loaded.rows if (reason := rows.why_not_gradeable(loaded_row))] == []
