"""The way of a person: `make -n TARGET` prints the real commands and runs none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.eks.files import REGISTRY, VALUES
from tests.paths import ROOT

TARGETS = {
    "cluster-up": "eksctl create cluster --config-file -",
    "create-ecr": "would make repository swe-argo/swe-argo-steps",
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
    for program in ("eksctl", "helm", "kubectl", "aws"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho called >>{tmp_path}/called\n")
        (tmp_path / program).chmod(0o755)
    spec = {**VALUES, "NODES": "5", "IMAGE_REGISTRY": f"{REGISTRY}/swe-argo", "IMAGE_TAG": "7"}
    # What this process was told by a make of its own is not this one's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    environment = kept | spec | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        # Whatever else is to be said: no test sets the environment up anew that others are running in.
        ["make", "--directory", str(ROOT), "--assume-old=.venv/.full", *words],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _make_is_there() -> None:
    if not shutil.which("make"):
        pytest.skip("needs make")
    if not (ROOT / ".venv" / ".full").exists():
        pytest.skip("needs the environment that make sets up")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("flags", [["-n"], ["--dry-run", "--no-print-directory"]])
def test_each_target_prints_what_it_would_do(tmp_path: Path, target: str, flags: list[str]) -> None:
    (tmp_path / "env").write_text("HF_TOKEN=x\n")
    done = make(tmp_path, *flags, target, f"ENV_FILE={tmp_path / 'env'}")
    assert done.returncode == 0, done.stderr
    assert TARGETS[target] in done.stdout
    assert not (tmp_path / "called").exists()


def test_a_target_that_is_refused_fails(tmp_path: Path) -> None:
    done = make(tmp_path, "--no-print-directory", "prescale", "NODES=many")
    assert done.returncode == 2
    assert "cluster/eks/prescale: NODES=many: a number from 0 to 20" in done.stderr
    assert not (tmp_path / "called").exists()


def test_other_flags_of_make_are_no_dry_run(tmp_path: Path) -> None:
    done = make(tmp_path, "--no-print-directory", "--jobs=2", "teardown")
    assert "CONFIRM=evals if you mean it" in done.stderr
