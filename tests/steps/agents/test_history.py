from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.history import hide_history
from swe_argo.steps.agents.patch import extract, record_start
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure
from tests.steps.agents.machine import Box, commit, git

SECRET = "the fix itself"
OLD, LATE = "2015-01-01T00:00:00Z", "2030-01-01T00:00:00Z"


def fix(repo: Path, date: str = LATE, *, name: str = "fixed.py") -> str:
    """A commit with the secret on top of HEAD, which is then left again: a dangling commit."""
    head, branch = git(repo, "rev-parse", "HEAD"), git(repo, "symbolic-ref", "HEAD")
    git(repo, "checkout", "-q", "--detach")
    commit_id = commit(repo, SECRET, {name: SECRET + "\n"}, date)
    git(repo, "symbolic-ref", "HEAD", branch)
    git(repo, "reset", "-q", "--hard", head)
    return commit_id


def secrets(repo: Path) -> list[str]:
    """Where the secret can still be read, by git or in any file of the git folder."""
    places = []
    everything = git(repo, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    for name in everything:
        kind = git(repo, "cat-file", "-t", name)
        if kind != "tree" and SECRET in git(repo, "cat-file", kind, name):
            places.append(name)
    folder = repo / ".git"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_file() and (SECRET.encode() in path.read_bytes() or b"git bundle" in path.read_bytes()[:20]):
            places.append(str(path))
    return places


def dangling(repo: Path) -> None:
    fix(repo, LATE)
    fix(repo, OLD, name="old.py")
    git(repo, "reflog", "expire", "--expire=now", "--all")


def only_in_the_reflog(repo: Path) -> None:
    fix(repo)


def stashed(repo: Path) -> None:
    (repo / "a.py").write_text(SECRET)
    (repo / "new.py").write_text(SECRET)
    git(repo, "stash", "-u")


def other_branch(repo: Path) -> None:
    git(repo, "branch", "future", fix(repo))


def packed_refs(repo: Path) -> None:
    git(repo, "branch", "future", fix(repo))
    git(repo, "pack-refs", "--all")
    git(repo, "gc", "-q")


def remote_refs(repo: Path) -> None:
    git(repo, "update-ref", "refs/remotes/origin/main", fix(repo))
    git(repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git(repo, "remote", "add", "origin", "https://token@example.org/the/repo.git")
    git(repo, "config", "branch.main.remote", "origin")
    (repo / ".git/FETCH_HEAD").write_text(f"{fix(repo)}\t\tbranch 'main' of example.org ({SECRET})\n")


def tags_off_history(repo: Path) -> None:
    commit_id = fix(repo)
    git(repo, "tag", "v2.0", commit_id)
    git(repo, "tag", "-a", "v2.1", "-m", SECRET, commit_id)
    git(repo, "tag", "blob", git(repo, "hash-object", "-w", "--stdin", stdin=SECRET.encode()))


def notes(repo: Path) -> None:
    git(repo, "notes", "add", "-m", SECRET, "HEAD")


def replaced(repo: Path) -> None:
    git(repo, "replace", git(repo, "rev-parse", "HEAD~1"), fix(repo))


def orphan_blob(repo: Path) -> None:
    git(repo, "hash-object", "-w", "--stdin", stdin=SECRET.encode())


def older_than_head(repo: Path) -> None:
    git(repo, "branch", "future", fix(repo, OLD))
    git(repo, "gc", "-q", "--prune=2025-06-01")


def pack_with_keep_file(repo: Path) -> None:
    fix(repo)
    git(repo, "repack", "-q", "-a", "-d")
    for pack in (repo / ".git/objects/pack").glob("*.pack"):
        pack.with_suffix(".keep").write_text("keep\n")
        pack.with_suffix(".promisor").write_text("")


def cruft_pack(repo: Path) -> None:
    dangling(repo)
    git(repo, "repack", "-q", "--cruft", "-d")


def multi_pack_index(repo: Path) -> None:
    git(repo, "repack", "-q")
    git(repo, "branch", "future", fix(repo))
    git(repo, "repack", "-q")
    git(repo, "multi-pack-index", "write")
    git(repo, "commit-graph", "write", "--reachable")


def bundle(repo: Path) -> None:
    git(repo, "branch", "future", fix(repo))
    git(repo, "bundle", "create", ".git/all.bundle", "--all")
    (repo / ".git/objects/pack/tmp_pack_x").write_text(SECRET)
    (repo / ".git/objects/info/notes.txt").write_text(SECRET)


def merge_in_progress(repo: Path) -> None:
    commit_id = fix(repo)
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "ORIG_HEAD", "AUTO_MERGE"):
        (repo / ".git" / name).write_text(commit_id + "\n")
    (repo / ".git/MERGE_MSG").write_text(SECRET)


def alternates(repo: Path) -> None:
    lender = repo.parent / "lender"
    git(repo.parent, "clone", "-q", "--bare", str(repo), str(lender))
    git(lender, "update-ref", "refs/heads/future", fix_in(lender, repo))
    (repo / ".git/objects/info/alternates").write_text(f"{lender}/objects\n")
    git(repo, "repack", "-q", "-a", "-d", "-l")
    git(repo, "prune", "--expire=now")


def fix_in(lender: Path, repo: Path) -> str:
    blob = git(lender, "hash-object", "-w", "--stdin", stdin=SECRET.encode())
    tree = git(lender, "mktree", stdin=f"100644 blob {blob}\tfixed.py\n".encode())
    return git(lender, "commit-tree", "-p", git(repo, "rev-parse", "HEAD"), "-m", SECRET, tree)


def linked_worktree(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", str(repo / "elsewhere"), fix(repo))


def grafted(repo: Path) -> None:
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/grafts").write_text(f"{git(repo, 'rev-parse', 'HEAD')} {fix(repo)}\n")


def gc_keeps_everything(repo: Path) -> None:
    for name in ("gc.pruneExpire", "gc.reflogExpire", "gc.reflogExpireUnreachable"):
        git(repo, "config", name, "never")
    git(repo, "config", "pack.packSizeLimit", "1m")
    git(repo, "config", "transfer.hideRefs", "refs/heads/future")
    git(repo, "branch", "future", fix(repo))


LEAKS: list[Callable[[Path], None]] = [
    dangling,
    only_in_the_reflog,
    stashed,
    other_branch,
    packed_refs,
    remote_refs,
    tags_off_history,
    notes,
    replaced,
    orphan_blob,
    older_than_head,
    pack_with_keep_file,
    cruft_pack,
    multi_pack_index,
    bundle,
    merge_in_progress,
    alternates,
    linked_worktree,
    grafted,
    gc_keeps_everything,
]


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_unreachable_commits_are_gone(box: Box, leak: Callable[[Path], None]) -> None:
    head = git(box.testbed, "rev-parse", "HEAD")
    below = git(box.testbed, "rev-list", "HEAD")
    leak(box.testbed)
    if leak is not grafted:
        assert secrets(box.testbed), "the test hides nothing"
    history = hide_history(box.sandbox)
    assert secrets(box.testbed) == []
    assert history.verified
    assert history.unreachable_after == 0
    assert history.objects_after <= history.objects_before
    assert history.head == head == git(box.testbed, "rev-parse", "HEAD")
    assert git(box.testbed, "rev-list", "HEAD") == below
    assert git(box.testbed, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(box.testbed, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/tags/v0.9",
        "refs/tags/v1.0",
    ]
    assert git(box.testbed, "describe", "--tags") == "v1.0-1-g" + head[:7]
    assert git(box.testbed, "remote") == ""
    assert git(box.testbed, "status", "--porcelain") == ""
    git(box.testbed, "fsck", "--full", "--strict")


def test_hidden_objects_are_counted(box: Box) -> None:
    other_branch(box.testbed)
    history = hide_history(box.sandbox)
    assert history.refs_removed == 1
    assert history.objects_before - history.objects_after == 3  # commit, tree, blob


def test_hide_history_is_idempotent(box: Box) -> None:
    other_branch(box.testbed)
    first, second = hide_history(box.sandbox), hide_history(box.sandbox)
    assert second.refs_removed == 0
    assert second.objects_before == second.objects_after == first.objects_after


def test_working_tree_is_unchanged(box: Box) -> None:
    repo = box.testbed
    (repo / "a.py").write_text("a = 3\n")
    (repo / "staged.py").write_text("staged\n")
    git(repo, "add", "staged.py")
    (repo / "staged.py").write_text("changed after staging\n")
    (repo / "untracked.txt").write_text("x\n")
    (repo / ".git/info/exclude").write_text("*.log\n")
    (repo / "build.log").write_text("x\n")
    (repo / ".git/hooks").mkdir(exist_ok=True)
    (repo / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    before = git(repo, "status", "--porcelain", "--ignored")
    index = hashlib.sha256((repo / ".git/index").read_bytes()).hexdigest()
    hide_history(box.sandbox)
    assert hashlib.sha256((repo / ".git/index").read_bytes()).hexdigest() == index
    assert git(repo, "status", "--porcelain", "--ignored") == before
    assert git(repo, "show", ":staged.py") == "staged"
    assert (repo / ".git/hooks/pre-commit").exists()


def test_detached_head_stays_detached(box: Box) -> None:
    other_branch(box.testbed)
    git(box.testbed, "checkout", "-q", "--detach")
    history = hide_history(box.sandbox)
    assert (box.testbed / ".git/HEAD").read_text().strip() == history.head
    assert git(box.testbed, "for-each-ref", "refs/heads") == ""
    git(box.testbed, "fsck", "--strict")


def test_shallow_clone_stays_shallow(box: Box) -> None:
    source = box.testbed.rename(box.root / "source")
    git(source, "branch", "future", fix(source))
    git(box.root, "clone", "-q", "--depth=1", "--no-tags", "--no-single-branch", f"file://{source}", str(box.testbed))
    below = git(box.testbed, "rev-list", "HEAD")
    hide_history(box.sandbox)
    assert secrets(box.testbed) == []
    assert git(box.testbed, "rev-list", "HEAD") == below
    assert len(below.split()) == 1
    git(box.testbed, "fsck")


def test_partial_clone_still_works(box: Box) -> None:
    source = box.testbed.rename(box.root / "source")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(source, "branch", "future", fix(source))
    git(box.root, "clone", "-q", "--filter=blob:none", f"file://{source}", str(box.testbed))
    git(box.testbed, "show", "origin/future")
    source.rename(box.root / "out of reach")
    hide_history(box.sandbox)
    assert secrets(box.testbed) == []
    assert git(box.testbed, "show", "HEAD:a.py") == "a = 2"


def test_submodules_are_cleaned(box: Box) -> None:
    library = box.root / "library"
    library.mkdir()
    git(library, "init", "-q")
    commit(library, "one", {"lib.py": "x = 1\n"})
    git(library, "branch", "future", fix(library))
    git(box.testbed, "submodule", "add", "-q", str(library), "vendor/library")
    git(box.testbed, "commit", "-q", "-m", "submodule")
    git(box.testbed / "vendor/library", "fetch", "-q", "--all")
    assert secrets(box.testbed / "vendor/library")
    hide_history(box.sandbox)
    assert secrets(box.testbed / "vendor/library") == []
    assert git(box.testbed / "vendor/library", "remote") == ""
    assert git(box.testbed, "status", "--porcelain") == ""
    assert git(box.testbed, "submodule", "status").startswith(" ")


def test_absent_submodule_is_removed(box: Box) -> None:
    submodule = box.testbed / ".git/modules/gone"
    git(box.root, "clone", "-q", "--bare", str(box.testbed), str(submodule))
    git(submodule, "update-ref", "refs/heads/future", fix_in(submodule, box.testbed))
    hide_history(box.sandbox)
    assert not submodule.exists()


def test_nested_shared_clone_is_cleaned(box: Box) -> None:
    git(box.testbed, "branch", "future", fix(box.testbed))
    git(box.root, "clone", "-q", "--shared", str(box.testbed), str(box.testbed / "vendor/copy"))
    inner = box.testbed / "vendor/copy/inner"
    commit(box.testbed / "vendor/copy", "only here", {"here.py": "x\n"})
    git(box.root, "clone", "-q", "--shared", str(box.testbed / "vendor/copy"), str(inner))
    git(box.testbed / "vendor/copy", "reset", "-q", "--hard", "HEAD~1")
    hide_history(box.sandbox)
    for repo in (box.testbed, box.testbed / "vendor/copy", inner):
        assert secrets(repo) == []
        git(repo, "fsck", "--strict")


def test_object_lender_is_unchanged(box: Box) -> None:
    alternates(box.testbed)
    hide_history(box.sandbox)
    assert secrets(box.testbed) == []
    assert git(box.root / "lender", "cat-file", "commit", "future")


def test_hard_linked_files_are_unchanged(box: Box) -> None:
    other_branch(box.testbed)
    image = box.testbed.rename(box.root / "image")
    subprocess.run(["cp", "-al", str(image), str(box.testbed)], check=True)
    before = {path: path.read_bytes() for path in image.rglob("*") if path.is_file()}
    hide_history(box.sandbox)
    assert {path: path.read_bytes() for path in image.rglob("*") if path.is_file()} == before


def test_sha256_repository_is_cleaned(box: Box) -> None:
    shutil.rmtree(box.testbed / ".git")
    git(box.testbed, "init", "-q", "--object-format=sha256")
    commit(box.testbed, "base", {})
    git(box.testbed, "branch", "future", fix(box.testbed))
    before = record_start(box.sandbox, hide_history(box.sandbox).head)
    assert secrets(box.testbed) == []
    (box.testbed / "a.py").write_text("a = 3\n")
    assert b"+a = 3" in extract(box.sandbox, before).data


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "failure_class"),
    [
        (128, "fatal: write error: No space left on device", ResourceError, FailureClass.OUT_OF_DISK),
        (137, "Killed", ResourceError, FailureClass.OUT_OF_MEMORY),
        (128, "fatal: Out of memory, malloc failed", ResourceError, FailureClass.OUT_OF_MEMORY),
        (None, "", InfraError, FailureClass.EXEC),
        (1, "error: bad object", InfraError, FailureClass.EXEC),
    ],
)
def test_script_failure_has_its_class(
    code: int | None, stderr: str, kind: type[StepError], failure_class: FailureClass
) -> None:
    error = script_failure("hiding", ExecResult(code, b"", stderr.encode(), code is None, False, 1.0))
    assert type(error) is kind
    assert error.failure_class is failure_class
    assert error.detail == stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to another user")
def test_foreign_repository_is_cleaned(box: Box) -> None:
    other_branch(box.testbed)
    for path in [box.testbed, *box.testbed.rglob("*")]:
        os.chown(path, 12345, 12345)
    hide_history(box.sandbox)
    for path in [box.testbed, *box.testbed.rglob("*")]:
        os.chown(path, 0, 0)
    assert secrets(box.testbed) == []


class SandboxWithGitVariables:
    """A sandbox whose image sets variables of git, as an ENV line of a Dockerfile can."""

    def __init__(self, inner: Sandbox) -> None:
        self.machine, self.inner = inner.machine, inner
        self.read, self.write, self.outside_failure = inner.read, inner.write, inner.outside_failure

    def exec(self, command: str, *, env: dict[str, str] | None = None, **more: Any) -> ExecResult:
        strange = {"GIT_DIR": "/nowhere", "GIT_OBJECT_DIRECTORY": "/nowhere", "GIT_WORK_TREE": "/"}
        return self.inner.exec(command, env={**strange, **(env or {})}, **more)


def test_image_git_variables_are_ignored(box: Box) -> None:
    other_branch(box.testbed)
    sandbox = SandboxWithGitVariables(box.sandbox)
    before = record_start(sandbox, hide_history(sandbox).head)
    assert secrets(box.testbed) == []
    (box.testbed / "a.py").write_text("a = 3\n")
    assert b"+a = 3" in extract(sandbox, before).data


def test_credentials_are_removed(box: Box) -> None:
    git(box.testbed, "config", "http.https://example.org/.extraheader", "AUTHORIZATION: basic c2VjcmV0")
    git(box.testbed, "config", "url.https://token@example.org/.insteadOf", "https://example.org/")
    git(box.testbed, "config", "user.name", "kept")
    hide_history(box.sandbox)
    text = (box.testbed / ".git/config").read_text()
    assert "example.org" not in text
    assert "kept" in text


def test_missing_repository_is_refused(box: Box) -> None:
    shutil.rmtree(box.testbed / ".git")
    with pytest.raises(ConfigError, match=r"test/image: .* has no git repository"):
        hide_history(box.sandbox)


def test_empty_repository_is_refused(box: Box) -> None:
    shutil.rmtree(box.testbed / ".git")
    git(box.testbed, "init", "-q")
    with pytest.raises(ConfigError, match="is not a readable commit"):
        hide_history(box.sandbox)


def test_linked_worktree_is_refused(box: Box) -> None:
    source = box.testbed.rename(box.root / "source")
    git(source, "worktree", "add", "-q", str(box.testbed))
    with pytest.raises(ConfigError, match="has no git repository"):
        hide_history(box.sandbox)
    assert git(source, "for-each-ref", "refs/tags")
