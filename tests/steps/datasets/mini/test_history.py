"""The repositories of the instances: equal on every machine, with a history like that of real images."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.datasets.mini import TASK_REPO, materialise
from swe_argo.steps.datasets.mini.forms import instance_ids
from swe_argo.steps.errors import ConfigError
from tests.long_params import long_unless
from tests.steps.datasets.mini.running import git

IDS = instance_ids()
ONE = "mini__slugkit-1"


def all_objects(testbed: Path) -> str:
    """Return every object of a repository as text, reachable or not."""
    names = git(testbed, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    return "\n".join(git(testbed, "cat-file", "-p", name.split()[1]) for name in names if not name.startswith("tree"))


def test_commits_ignore_git_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    materialise(ONE, tmp_path / "plain")
    home = tmp_path / "home"
    (home / "templates" / "hooks").mkdir(parents=True)
    hook = home / "templates" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n\tfileMode = false\n[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch = trunk\n"
        f"\ttemplateDir = {home}/templates\n[user]\n\tname = Somebody\n\temail = somebody@example.org\n"
    )
    variables = {"HOME": str(home), "TZ": "Asia/Tokyo", "GIT_DIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    for name, value in (variables | {"GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z"}).items():
        monkeypatch.setenv(name, value)
    mask = os.umask(0o077)
    try:
        materialise(ONE, tmp_path / "odd")
    finally:
        os.umask(mask)
        monkeypatch.undo()
    refs = [git(tmp_path / name / "testbed", "for-each-ref") for name in ("plain", "odd")]
    assert refs[0] == refs[1]
    assert not list((tmp_path / "odd" / "testbed" / ".git").glob("hooks/*"))


def test_fix_is_reachable(tmp_path: Path) -> None:
    materialise(ONE, tmp_path)
    testbed = tmp_path / "testbed"
    fix = git(testbed, "rev-parse", "future").strip()
    assert git(testbed, "tag", "--points-at", fix) == "v1.4.1\n"
    assert fix in git(testbed, "reflog", "--no-abbrev", "HEAD")
    assert git(testbed, "rev-parse", "ORIG_HEAD").strip() == fix
    dates = git(testbed, "log", "--no-walk=unsorted", "--format=%ct", fix, "HEAD").split()
    assert int(dates[0]) < int(dates[1]), "the fix is older than the set-up commit"
    assert git(testbed, "diff", "--name-only", "HEAD~1", fix).split() == ["slugkit/ascii.py", "tests/test_ascii.py"]


@pytest.mark.parametrize("instance_id", long_unless([name for name in IDS if name.endswith("-1")], IDS))
def test_repository_matches_task(instance_id: str, tmp_path: Path) -> None:
    """HEAD is a set-up commit above the base, patches are as git writes them, and hidden tests can be cleaned."""
    materialise(instance_id, tmp_path)
    testbed, folder = tmp_path / "testbed", TASK_REPO / "tasks" / instance_id
    assert git(testbed, "status", "--porcelain", "--branch").split() == ["##", "main"]
    assert git(testbed, "log", "-1", "--format=%an %s") == "SWE-bench SWE-bench\n"
    assert git(testbed, "diff", "--name-only", "HEAD~1", "HEAD") == "pyproject.toml\n"
    assert git(testbed, "tag", "--merged", "HEAD").startswith("v")
    assert not git(testbed, "remote")
    patches = [(folder / name).read_bytes().decode() for name in ("gold.patch", "test.patch")]
    added = [line[1:].strip() for line in patches[1].splitlines() if line.startswith("+")]
    hidden = [line for line in added if line.startswith("def test_")]
    assert hidden
    assert all(line in all_objects(testbed) for line in hidden), "before, there is something to hide"
    clean = Path(__file__).parents[4] / "steps" / "agents" / "hide_history.sh"
    subprocess.run(["bash", str(clean)], cwd=testbed, check=True, capture_output=True)
    remaining = all_objects(testbed) + "".join(path.read_text(encoding="utf-8") for path in testbed.rglob("*.py"))
    assert [line for line in hidden if line in remaining] == []
    base = (folder / "task.yaml").read_text().partition("base_commit: ")[2].split()[0]
    assert git(testbed, "cat-file", "-t", base) == "commit\n"
    for name in ("gold.patch", "test.patch"):
        git(testbed, "apply", str(folder / name))
    git(testbed, "add", "--intent-to-add", ".")
    assert git(testbed, "diff", "--no-color", "--abbrev=7") == "".join(patches)


def test_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs git"):
        materialise(ONE, tmp_path)
