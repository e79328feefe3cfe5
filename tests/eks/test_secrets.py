"""Keys of .env become a Secret, and are seen nowhere on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eks.files import programs, script

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


def test_secrets_dry_run_hides_values(env: Path) -> None:
    result = script("secrets", "-n", str(env))
    assert result.returncode == 0
    assert "secret tinker-credentials in namespace bench: OPENAI_API_KEY HF_TOKEN TINKER_API_KEY\n" in result.stdout
    assert "skipped: AWS_SECRET_ACCESS_KEY" in result.stdout
    assert not any(value in result.stdout + result.stderr for value in HIDDEN)


def test_secrets_pass_by_stdin(env: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    kubectl = f"""echo "$*" >>{record}.words
        case "$*" in
        "config current-context") echo me@evals.eu-central-1.eksctl.io ;;
        *from-env-file*) cat >{record}.input ;;
        esac"""
    result = script("secrets", str(env), PATH=programs(tmp_path / "programs", kubectl=kubectl))
    assert result.returncode == 0, result.stderr
    input_text = Path(f"{record}.input").read_text()
    assert input_text.splitlines() == ["OPENAI_API_KEY=sk one # two", "HF_TOKEN=hf_abc", "TINKER_API_KEY=tk=="]
    words = Path(f"{record}.words").read_text()
    assert "apply --server-side" in words  # a client's apply would keep them in an annotation
    assert not any(value in words + result.stdout + result.stderr for value in HIDDEN)


def test_secrets_accept_other_keys(env: Path) -> None:
    result = script("secrets", "-n", str(env), SECRET_KEYS="AWS_SECRET_ACCESS_KEY", SECRET="mine")
    assert "secret mine in namespace bench: AWS_SECRET_ACCESS_KEY\n" in result.stdout


def test_secrets_refuse_empty_file(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("EDITOR=vi\n")
    result = script("secrets", "-n", str(tmp_path / "env"))
    assert result.returncode == 64
    assert "contains none of the keys TINKER_API_KEY" in result.stderr


def test_secrets_hide_bad_line(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("HF_TOKEN=x\n\nsk-lonely-secret\n")
    result = script("secrets", "-n", str(tmp_path / "env"))
    assert result.returncode == 64
    assert "line 3 is neither KEY=VALUE nor a comment" in result.stderr
    assert "lonely" not in result.stdout + result.stderr
