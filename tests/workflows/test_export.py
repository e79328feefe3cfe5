from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.store import Store
from tests.steps.test_export import IDS, fill
from tests.workflows.command import call


@pytest.fixture
def store(store: Store) -> Store:
    fill(store)
    return store


def test_export_writes_run(store: Store, tmp_path: Path) -> None:
    result = call("export", "night", "--format", "mini", "--out", str(tmp_path / "out"), "--store", store.url)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert result.stdout.splitlines() == [
        "note: 1 unit has no trajectory and is left out: django__django-3",
        f"2 units in {tmp_path / 'out'}",
    ]
    assert sorted(json.loads((tmp_path / "out" / "preds.json").read_bytes())) == IDS[:2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["day", "--format", "mini"], "swe-argo: run: there is no run 'day' in"),
        (["night", "--format", "zip"], "'zip' is not one of"),
        (["night"], "swe-argo: export: choose a format: --format"),
        (["--format", "mini"], "swe-argo: export: a run is missing"),
        (["night", "--format", "mini", "--k", "3"], "swe-argo: export: flags of a dataset apply to --format verl"),
        (["night", "--format", "verl", "--k", "3"], "swe-argo: remove the flags of a dataset: night is a run"),
        (["nights", "--format", "verl"], "swe-argo: dataset: unknown dataset 'nights'"),
        (["night", "--format", "verl", "--prompt-style", "4"], "swe-argo: --prompt-style: unknown prompt style '4'"),
        (["night", "--format", "mini", "--out", "/dev/null/x"], "swe-argo: --out: /dev/null/x cannot be written"),
    ],
)
def test_export_refuses_in_one_line(store: Store, words: list[str], message: str) -> None:
    result = call("export", *words, "--store", store.url)
    assert result.returncode == 64
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_export_writes_verl_dataset(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--sample_limit", "5", "--val_ratio", "0.5", "--output_dir", str(out), "--prompt_style", "3"]
    result = call("export", "mini", "--format", "verl", *words)
    assert result.returncode == 0, result.stderr
    message = f"3 rows in {out / 'train.parquet'}, 2 rows in {out / 'val.parquet'}; grading data in {out / 'store'}"
    assert result.stdout.splitlines()[-1] == message
