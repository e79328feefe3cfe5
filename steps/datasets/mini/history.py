"""The git repository of an instance, with reproducible commits.

It resembles SWE-bench images: a tag in the history, HEAD one set-up commit above ``base_commit`` and, as in images
older than swebench 4.1.0, the fix and its tests on another branch, under a tag and in the reflog. The fix is older than
HEAD, since SWE-bench's images are built long after the fix.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.datasets.mini.content import Content, content
from swe_argo.steps.errors import ConfigError, InfraError

_START_S = 1_704_103_200  # 2024-01-01 10:00 UTC
_DAY_S = 86_400
_AUTHOR = "Mini Maintainer <maintainer@mini.invalid>"
_SET_UP = "SWE-bench <setup@swebench.config>"  # the committer of the set-up in official images

# The machine's own configuration must not change a commit. HOME is left out for git < 2.32.
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{role}_NAME": "Mini Maintainer" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "maintainer@mini.invalid" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": f"{_START_S} +0000" for role in ("AUTHOR", "COMMITTER")},
    "LC_ALL": "C",
    "TZ": "UTC",
}
_SETTINGS = ("core.autocrlf=false", "core.fileMode=true", "gc.auto=0", "fastimport.unpackLimit=1")


def make_repository(instance_id: str, folder: Path) -> None:
    """Write ``<folder>/testbed``: the repository at the set-up commit, with the bug, without the tests that detect it.

    Raises ConfigError for an unknown instance or if git is missing, InfraError if git fails, FileExistsError if
    testbed exists.
    """
    inputs = content(instance_id)
    testbed = folder / "testbed"
    testbed.mkdir(parents=True)
    run_git(testbed, "init", "-q", "-b", "main", "--template=")
    _write(testbed, inputs.fixed)
    run_git(testbed, "apply", "-R", *(str(patch) for patch in reversed(inputs.patches)))
    run_git(testbed, "fast-import", "--quiet", stdin=_history(inputs, _read(testbed)))
    # Check out the fix first, as in an image built from a clone, so that HEAD's reflog and ORIG_HEAD contain it.
    run_git(testbed, "reset", "-q", "--soft", "future")
    run_git(testbed, "reset", "-q", "--hard", "ORIG_HEAD")


def _history(inputs: Content, base: dict[str, bytes]) -> bytes:
    """Return the whole history, with fixed dates, as input of ``git fast-import``."""
    project = tomllib.loads(base["pyproject.toml"].decode())["project"]
    version = project["version"]
    major, minor, patch = version.split(".")
    start = {path: data for path, data in base.items() if "/" not in path}
    library = {path: data for path, data in base.items() if not path.startswith("tests/")}
    set_up = base | {"pyproject.toml": base["pyproject.toml"].replace(b'["setuptools"]', b'["setuptools==68.0.0"]')}
    return b"".join([
        _commit("main", 1, 0, f"Start {inputs.name}: {project['description']}", start),
        _commit("main", 2, 1, f"Release {version}", library),
        _tag(f"v{version}", 2),
        _commit("main", 3, 2, "Add the test suite", base),
        _commit("future", 4, 3, f"Fix: {inputs.title}", inputs.fixed),
        _tag(f"v{major}.{minor}.{int(patch) + 1}", 4),
        _commit("main", 5, 3, "SWE-bench", set_up, author=_SET_UP),
        b"done\n",
    ])  # fmt: skip


def _commit(
    branch: str, mark: int, parent: int, message: str, files: dict[str, bytes], *, author: str = _AUTHOR
) -> bytes:
    """Return a commit whose tree is ``files``, as input of ``git fast-import``.

    ``mark``: its number, which is also its day; ``parent``: the mark of its parent, 0 for none.
    """
    when = f"{author} {_START_S + mark * _DAY_S} +0000"
    lines = [f"commit refs/heads/{branch}", f"mark :{mark}", f"author {when}", f"committer {when}"]
    head = "\n".join(lines).encode() + b"\n" + _data(f"{message}\n".encode())
    ancestry = f"from :{parent}\n".encode() if parent else b""
    changes = [b"M 100644 inline " + path.encode() + b"\n" + _data(data) for path, data in sorted(files.items())]
    return head + ancestry + b"deleteall\n" + b"".join(changes) + b"\n"


def _tag(name: str, mark: int) -> bytes:
    """Return a tag of the commit ``mark``, as input of ``git fast-import``."""
    when = f"{_AUTHOR} {_START_S + mark * _DAY_S} +0000"
    return f"tag {name}\nfrom :{mark}\ntagger {when}\n".encode() + _data(f"{name}\n".encode())


def _data(data: bytes) -> bytes:
    return f"data {len(data)}\n".encode() + data + b"\n"


def _write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)


def _read(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    relative = ((path.relative_to(root), path) for path in paths)
    return {name.as_posix(): path.read_bytes() for name, path in relative if name.parts[0] != ".git"}


def run_git(testbed: Path, *command: str, stdin: bytes = b"") -> bytes:
    """Run a git command with reproducible settings; return its output.

    Raises ConfigError if git is missing, InfraError if the command fails.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigError("the mini dataset needs git, which is not on PATH: install it", field="dataset")
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    run = subprocess.run(
        [git, *settings, *command], cwd=testbed, env=_ENVIRONMENT, input=stdin, capture_output=True, check=False
    )
    if run.returncode:
        detail = run.stderr.decode(errors="replace").strip()
        raise InfraError(
            FailureClass.SANDBOX_CREATE,
            f"git {command[0]} failed in {testbed}: {detail.splitlines()[-1:]}",
            detail=detail,
        )
    return run.stdout
