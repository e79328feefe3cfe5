"""Keys of .env become a Secret, and are seen nowhere on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eks.files import before, script

ENV = """# keys
export OPENAI_API_KEY="sk one # two"   # mine
HF_TOKEN=hf_abc # theirs
  TINKER_API_KEY = 'tk=='
WANDB_API_KEY=
AWS_SECRET_ACCESS_KEY=cloud
"""
HIDDEN = ("sk one", "hf_abc", "tk==", "cloud")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text(ENV)
    return tmp_path / ".env"


def test_a_dry_run_names_the_keys_and_no_value(env: Path) -> None:
    done = script("secrets", "-n", str(env))
    assert done.returncode == 0
    assert "secret tinker-credentials in namespace bench: OPENAI_API_KEY HF_TOKEN TINKER_API_KEY\n" in done.stdout
    assert "left out: AWS_SECRET_ACCESS_KEY" in done.stdout
    assert not any(value in done.stdout + done.stderr for value in HIDDEN)


def test_values_go_by_standard_input_and_are_never_arguments(env: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "kubectl").write_text(
        f'#!/bin/sh\necho "$*" >>{record}.words\n'
        f'case "$*" in "config current-context") echo me@evals.eu-central-1.eksctl.io ;;\n'
        f"*from-env-file*) cat >{record}.input ;; esac\n"
    )
    (tmp_path / "programs" / "kubectl").chmod(0o755)
    done = script("secrets", str(env), PATH=before(tmp_path / "programs"))
    assert done.returncode == 0, done.stderr
    given = Path(f"{record}.input").read_text()
    assert given.splitlines() == ["OPENAI_API_KEY=sk one # two", "HF_TOKEN=hf_abc", "TINKER_API_KEY=tk=="]
    words = Path(f"{record}.words").read_text()
    assert "apply --server-side" in words  # a client's apply would keep them in an annotation
    assert not any(value in words + done.stdout + done.stderr for value in HIDDEN)


def test_other_keys_can_be_named(env: Path) -> None:
    done = script("secrets", "-n", str(env), SECRET_KEYS="AWS_SECRET_ACCESS_KEY", SECRET="mine")
    assert "secret mine in namespace bench: AWS_SECRET_ACCESS_KEY\n" in done.stdout


def test_a_file_without_any_of_the_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("EDITOR=vi\n")
    done = script("secrets", "-n", str(tmp_path / "env"))
    assert done.returncode == 64
    assert "has none of TINKER_API_KEY" in done.stderr


def test_a_line_that_is_no_pair_is_told_by_its_number_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("HF_TOKEN=x\n\nsk-lonely-secret\n")
    done = script("secrets", "-n", str(tmp_path / "env"))
    assert done.returncode == 64
    assert "line 3 is neither KEY=VALUE nor a comment" in done.stderr
    assert "lonely" not in done.stdout + done.stderr
