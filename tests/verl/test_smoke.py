"""The smoke script in an empty home, up to the step that needs a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

SCRIPT = ROOT / "templates" / "verl" / "run_swebench_smoke.sh"


def smoke(home: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(home), "PYTHON": sys.executable, "GPUS": "0"} | settings
    for name in ("SWE_ARGO_VERL_DATA", "SWE_ARGO_VERL_LOGS", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    return subprocess.run(
        [SCRIPT, *words], env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=500
    )


def test_smoke_runs_up_to_the_gpu_step(isolation: None, tmp_path: Path) -> None:
    result = smoke(tmp_path, "mini", "--backend", "local", "--k", "6")
    assert result.returncode == 0, result.stderr
    data, *sandboxes, configuration, end = result.stdout.splitlines()
    assert data.startswith("smoke: data: 5 rows in ")
    assert ["reward 1 (resolved)" in line for line in sandboxes] == [True, False, False]
    assert all(line.startswith("smoke: sandbox: ") and "its sandbox is gone" in line for line in sandboxes)
    logs = tmp_path / "verl_swebench_logs" / "smoke"
    assert configuration == f"smoke: configuration: composed, in {logs}/configuration.log"
    composed = (logs / "configuration.log").read_text()
    assert f"{tmp_path}/data/swebench_mini/train.parquet" in composed
    assert "total_training_steps: 1\n" in composed
    assert end == "smoke: no step of GRPO: there is no GPU (GPUS=0); all before it is well"

    again = smoke(tmp_path, INSTANCE="nobody__knows-1")
    assert again.stdout == f"smoke: data: taken from {tmp_path}/data/swebench_mini, as it is there already\n"
    assert again.stderr.startswith("smoke: a sandbox or its verdict: ")
    assert again.returncode == 64


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (["mini", "--backend", "docker"], {"DOCKER_HOST": "unix:///nobody/listens"}, "no Docker engine answers"),
        (["no-such-data"], {}, "unknown dataset 'no-such-data'"),
        ([], {"PYTHON": "/no/python"}, "there is no /no/python"),
        ([], {"PYTHON": "/usr/bin/env"}, "/usr/bin/env has no swe-argo"),
    ],
)
def test_missing_input_is_one_line(tmp_path: Path, words: list[str], settings: dict[str, str], message: str) -> None:
    result = smoke(tmp_path, *words, **settings)
    assert result.returncode == 64
    (line,) = result.stderr.splitlines()
    assert message in line
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
