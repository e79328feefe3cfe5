"""How `cluster` builds its programs: what a person sees meanwhile, and the S3 server of a checkout without .venv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

HERE = ROOT / "cluster" / "local"
PARTS = "for part in settings daemons build; do . $HERE/$part.sh; done; mkdir -p $BIN $LOGS $STATE/build/stamps"


def shell(folder: Path, go: str, words: str) -> subprocess.CompletedProcess[str]:
    """What the functions of build.sh do where ``go`` is this script; it finds in $SAID what they have said so far."""
    programs, said = folder / "programs", folder / "said"
    programs.mkdir()
    (programs / "go").write_text(f"#!/bin/sh\n{go}\n")
    (programs / "go").chmod(0o755)
    ours = {"PATH": f"{programs}:{os.environ['PATH']}", "SWE_ARGO_CLUSTER": str(folder / "state"), "SAID": str(said)}
    script = f"set -euo pipefail; HERE={HERE}; {PARTS}; PROGRESS_S=1; {words}"
    with said.open("w") as stderr:
        done = subprocess.run(
            ["bash", "-c", script], env=os.environ | ours, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
        )
    done.stderr = said.read_text()
    return done


BUILD = "build_pause"


def test_a_build_says_how_far_it_is(tmp_path: Path) -> None:
    told_twice = "[ $(grep -c ' 2 packages' $SAID) -ge 2 ]"
    go = f"echo internal/abi; echo example.org/one/v2; until {told_twice}; do sleep 0.1; done; echo example.org/two"
    done = shell(tmp_path, go, BUILD)
    assert done.returncode == 0, done.stderr
    first, *more, last = done.stderr.splitlines()
    assert first == "building main.go"
    assert sum("  2 packages compiled, " in line for line in more) >= 2
    assert all(" packages compiled, " in line for line in more)
    assert last.startswith("built pause ")
    assert "example.org" not in done.stderr


def test_what_a_build_fails_of_is_shown(tmp_path: Path) -> None:
    go = "echo internal/abi >&2; echo 'main.go:7:1: expected declaration' >&2; exit 1"
    done = shell(tmp_path, go, BUILD)
    assert done.returncode == 1
    lines = ["building main.go", "main.go:7:1: expected declaration", "error: the build of main.go failed"]
    assert done.stderr.splitlines() == lines


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_s3_server_needs_no_venv_of_the_project(tmp_path: Path) -> None:
    index = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "moto"]
    if subprocess.run(index, capture_output=True, check=False).returncode:
        pytest.skip("pip reaches no package index here")
    done = shell(tmp_path, "exit 1", "build_s3; build_s3; $STATE/s3/bin/moto_server --help")
    assert done.returncode == 0, done.stderr
    assert "usage: moto_server" in done.stdout
    assert done.stderr.count("building moto") == 1
