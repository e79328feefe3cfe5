"""The files of cluster/eks, with their variables filled in as its scripts do, and the scripts as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

EKS = ROOT / "cluster" / "eks"
SCRIPTS = (
    "up", "create-ecr", "secrets", "deploy", "deploy-training", "karpenter", "submit", "prescale", "results",
    "teardown",
)  # fmt: skip
REGISTRY = "111122223333.dkr.ecr.eu-central-1.amazonaws.com"
VALUES = {
    "CLUSTER": "evals",
    "AWS_REGION": "eu-central-1",
    "NAMESPACE": "bench",
    "S3_BUCKET": "our-runs",
    "S3_PREFIX": "team/",
    "API_CIDR": "203.0.113.0/24",
    "PARTITION": "aws",
    "PULL_THROUGH_PREFIX": "docker-hub",
}


def run_python(file: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of the folder, with an environment of nothing else."""
    command = [sys.executable, str(EKS / file), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def fill(name: str, **values: str) -> subprocess.CompletedProcess[str]:
    """``fill.py`` on a file of the folder."""
    return run_python("fill.py", str(EKS / name), **values)


def filled(name: str) -> list[dict[str, Any]]:
    """The YAML documents of a file that has variables."""
    result = fill(name, **VALUES)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def values(name: str) -> dict[str, Any]:
    """A file of Helm values."""
    document: dict[str, Any] = yaml.safe_load((EKS / name).read_text())
    return document


def script(name: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A script with the settings of VALUES, but for those given as ``more``."""
    environment = {**VALUES, "HOME": "/nowhere", "PATH": os.environ["PATH"], "PYTHON": sys.executable, **more}
    return subprocess.run(
        [str(EKS / name), *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip


def programs(folder: Path, **scripts: str) -> str:
    """A PATH on which programs that run these shell scripts come first."""
    folder.mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def dry(name: str, *words: str, **more: str) -> list[str]:
    """The commands that a script would run. No program that they name needs to be here."""
    result = script(name, "-n", *words, **more)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def group(cluster: dict[str, Any], name: str) -> dict[str, Any]:
    """A managed node group."""
    (match,) = (candidate for candidate in cluster["managedNodeGroups"] if candidate["name"] == name)
    return dict(match)


def setting(name: str) -> str:
    """A version that the scripts install."""
    match = re.search(rf"^{name}=(\S+)$", (EKS / "settings.sh").read_text(), re.MULTILINE)
    assert match
    return match[1]
