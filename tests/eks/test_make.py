"""The way of a person: `make -n TARGET` prints the real commands and runs none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.eks.files import REGISTRY, VALUES, programs
from tests.paths import ROOT

TARGETS = {
    "cluster-up": "eksctl create cluster --config-file -",
    "create-ecr": "would create repository swe-argo/swe-argo-steps",
    "secrets": "secret tinker-credentials in namespace bench: HF_TOKEN",
    "deploy": "helm upgrade --install argo-workflows",
    "deploy-training": "--values charts/swe-argo/values-training.yaml",
    "submit-smoke": "submit --dataset verified --agent gold --backend kubernetes --namespace bench --k 5",
    "submit-verified": "submit --dataset verified --agent gold --backend kubernetes --namespace bench",
    "prescale": "--name cpu-sandbox --nodes 5",
    "results": "aws s3 sync",
    "teardown": "eksctl delete cluster --name evals",
}


def make(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """make, with programs of the cloud first on the PATH that would tell of themselves."""
    path = programs(tmp_path, **dict.fromkeys(("eksctl", "helm", "kubectl", "aws"), f"echo called >>{tmp_path}/called"))
    spec = {**VALUES, "NODES": "5", "IMAGE_REGISTRY": f"{REGISTRY}/swe-argo", "IMAGE_TAG": "7"}
    # What this process was told by a make of its own is not this one's.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    environment = environ | spec | {"PATH": path}
    return subprocess.run(
        # Whatever else is to be said: no test sets the environment up anew that others are running in.
        ["make", "--directory", str(ROOT), "--assume-old=.venv/.full", *words],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _require_make() -> None:
    if not shutil.which("make"):
        pytest.skip("needs make")
    if not (ROOT / ".venv" / ".full").exists():
        pytest.skip("needs the environment that make sets up")


@pytest.mark.parametrize("target", TARGETS)
def test_make_dry_run_prints_commands(tmp_path: Path, target: str) -> None:
    (tmp_path / "env").write_text("HF_TOKEN=x\n")
    flags = ["--dry-run", "--no-print-directory"] if target == "results" else ["-n"]
    result = make(tmp_path, *flags, target, f"ENV_FILE={tmp_path / 'env'}")
    assert result.returncode == 0, result.stderr
    assert TARGETS[target] in result.stdout
    assert not (tmp_path / "called").exists()


def test_make_target_fails_when_refused(tmp_path: Path) -> None:
    result = make(tmp_path, "--no-print-directory", "prescale", "NODES=many")
    assert result.returncode == 2
    assert "cluster/eks/prescale: NODES=many is not a number from 0 to 20" in result.stderr
    assert not (tmp_path / "called").exists()


def test_other_make_flags_run_target(tmp_path: Path) -> None:
    result = make(tmp_path, "--no-print-directory", "--jobs=2", "teardown")
    assert "set CONFIRM=evals to confirm" in result.stderr
