"""Content of an issue: its repository's files, and its two patches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.errors import ConfigError

TASK_REPO = Path(__file__).resolve().parent / "data"
"""The folder with sweb.yaml."""

HARBOR_TASKS = TASK_REPO / "harbor"
"""The folder of tasks in Harbor's form."""
FORMAT = "1"
"""Version of the format; raise it when the same files give another repository or image."""

_LEFTOVERS = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class Content:
    """A repository's fixed state (bytes by path), and the patches that lead to it: gold, then test."""

    instance_id: str
    name: str
    fixed: dict[str, bytes]
    patches: tuple[Path, Path]
    dockerfile: Path

    @property
    def title(self) -> str:
        """The first line of the issue."""
        text = (self.dockerfile.parent / "problem_statement.md").read_text(encoding="utf-8")
        return text.splitlines()[0].lstrip("# ")


def instance_ids() -> list[str]:
    """Return the ids of all instances, sorted."""
    return sorted(path.parent.name for path in TASK_REPO.glob("tasks/*/task.yaml"))


def content(instance_id: str) -> Content:
    """Read the files of ``mini__<repository>-<number>``. Raises ConfigError for an unknown instance."""
    if instance_id not in instance_ids():
        raise ConfigError(
            f"mini has no instance {instance_id!r}; it has {', '.join(instance_ids())}", field="instances"
        )
    task = TASK_REPO / "tasks" / instance_id
    name = instance_id.removeprefix("mini__").rpartition("-")[0]
    return Content(
        instance_id,
        name,
        _files(TASK_REPO / "repos" / name),
        (task / "gold.patch", task / "test.patch"),
        task / "Dockerfile",
    )


def digest_issue(instance_id: str) -> str:
    """Return ``sha256:...`` over all inputs of the issue's image, except its base."""
    inputs = content(instance_id)
    parts = {"format": FORMAT.encode(), "title": inputs.title.encode()}
    parts |= {f"fixed/{path}": data for path, data in inputs.fixed.items()}
    parts |= {path.name: path.read_bytes() for path in (*inputs.patches, inputs.dockerfile)}
    total = hashlib.sha256()
    for name, data in sorted(parts.items()):
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return f"sha256:{total.hexdigest()}"


def _files(root: Path) -> dict[str, bytes]:
    """Return bytes by relative path, without caches of running the code (installing a wheel compiles it)."""
    paths = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {path.as_posix(): (root / path).read_bytes() for path in paths if not _LEFTOVERS.intersection(path.parts)}
