from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.store import Store
from tests.steps.test_export import IDS, fill
from tests.workflows.command import swe_argo


@pytest.fixture
def store(store: Store) -> Store:
    fill(store)
    return store


def test_a_run_is_exported_and_the_place_told(store: Store, tmp_path: Path) -> None:
    done = swe_argo("export", "night", "--format", "mini", "--out", str(tmp_path / "out"), "--store", store.url)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.splitlines() == [
        "note: 1 unit has no trajectory and is left out: django__django-3",
        f"2 units in {tmp_path / 'out'}",
    ]
    assert sorted(json.loads((tmp_path / "out" / "preds.json").read_bytes())) == IDS[:2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["day", "--format", "mini"], "swe-argo: run: there is no run 'day' in"),
        (["night", "--format", "zip"], "'zip' is not one of"),
        (["night"], "swe-argo: export: say whose files: --format"),
        (["--format", "mini"], "swe-argo: export: name a run"),
        (["night", "--format", "mini", "--k", "3"], "swe-argo: export: flags of a dataset are for --format verl"),
        (["night", "--format", "verl", "--k", "3"], "swe-argo: a run has its sandboxes and limits already"),
        (["nights", "--format", "verl"], "swe-argo: dataset: unknown dataset 'nights'"),
        (["night", "--format", "verl", "--prompt-style", "4"], "swe-argo: --prompt-style: '4' is no style"),
        (["night", "--format", "mini", "--out", "/dev/null/x"], "swe-argo: --out: /dev/null/x cannot be written"),
    ],
)
def test_a_wrong_request_is_one_line(store: Store, words: list[str], told: str) -> None:
    done = swe_argo("export", *words, "--store", store.url)
    assert done.returncode == 64
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dataset_becomes_what_verl_trains_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--sample_limit", "5", "--val_ratio", "0.5", "--output_dir", str(out), "--prompt_style", "3"]
    done = swe_argo("export", "mini", "--format", "verl", *words)
    assert done.returncode == 0, done.stderr
    told = f"3 rows in {out / 'train.parquet'}, 2 rows in {out / 'val.parquet'}; what grades them in {out / 'store'}"
    assert done.stdout.splitlines()[-1] == told
