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
def test_every_real_row_is_read_and_its_files_survive_the_way(name: str) -> None:
    loaded = load(str(DATA / f"swebench/{name}.parquet"), "test")
    assert len(loaded.rows) == REAL[name]
    for found in loaded.rows:
        assert all(isinstance(test, str) for tests in swebench_rows.TEST_LISTS for test in found[tests])
        answer, instance = rows.to_answer(found), rows.to_instance(found, hints=True)
        assert type(answer).from_bytes(answer.to_bytes()) == answer
        assert type(instance).from_bytes(instance.to_bytes()) == instance


@needs_data
def test_the_real_rows_hold_what_is_known_of_them() -> None:
    verified = load(str(DATA / "swebench/verified_test.parquet"), "test").rows
    assert sum(len(each["FAIL_TO_PASS"]) for each in verified) == 1516
    assert sum(len(each["PASS_TO_PASS"]) for each in verified) == 60136
    multilingual = load(str(DATA / "swebench/multilingual_test.parquet"), "test").rows
    assert sum(len(each["PASS_TO_PASS"]) for each in multilingual) == 10214
    assert sum("\r" in each["patch"] + each["test_patch"] for each in multilingual) == 2


@needs_data
def test_every_real_row_can_be_graded() -> None:
    reasons = {
        name: [
            reason
            for each in load(str(DATA / f"swebench/{name}.parquet"), "x").rows
            if (reason := rows.why_not_gradeable(each))
        ]
        for name in REAL
    }
    assert not [found for found in reasons.values() if found]


def test_importing_the_modules_loads_no_heavy_library() -> None:
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
    with pytest.raises(ConfigError, match=r"r\.jsonl holds 2 ids more than once: a__b-1, a__b-3$"):
        load(str(path), "test")


def test_ids_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "r.jsonl", row("a__b-1"), row("A__b-1"))
    with pytest.raises(ConfigError, match="differ in case only: A__b-1, a__b-1"):
        load(str(path), "test")


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no rows"):
        load(str(jsonl(tmp_path / "r.jsonl")), "test")


@pytest.mark.parametrize("name", ["verifed", "", "a/b/c", "../nowhere", "/nowhere/at/all"])
def test_an_unknown_name_is_refused_with_the_forms_there_are(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(name, "test")
    assert caught.value.reason.startswith(f"dataset: unknown dataset {name!r}")
    assert names.FORMS in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize("name", ["~nobody-of-this-name/rows.jsonl", "x" * 5000, "a\0b"])
def test_what_can_be_no_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no path: ") as caught:
        load(name, "test")
    assert "\n" not in caught.value.reason


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no file nowhere/rows\.parquet"):
        load("nowhere/rows.parquet", "test")


def test_a_folder_may_be_called_like_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "SWE-bench" / "SWE-bench_Verified"
    folder.mkdir(parents=True)
    jsonl(folder / "test.jsonl", row())
    monkeypatch.chdir(tmp_path)
    assert len(load("SWE-bench/SWE-bench_Verified", "test").rows) == 1


def test_a_revision_of_a_local_file_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "r.jsonl", row())
    with pytest.raises(ConfigError, match=r"^revision: only a dataset of a hub has revisions"):
        load(str(path), "test", revision="main")


def test_the_bundled_instances_need_nothing_but_their_name() -> None:
    loaded = load("Mini", "test")
    assert (loaded.name, loaded.revision) == ("mini", None)
    assert len(loaded.rows) >= 10
    assert len({each["repo"] for each in loaded.rows}) >= 5
    assert [reason for each in loaded.rows if (reason := rows.why_not_gradeable(each))] == []
