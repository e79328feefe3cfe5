"""Reading of a task's folder as a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swe_argo.steps.families.harbor import folders
from swe_argo.steps.families.harbor.folders import TaskFolderError

CONFIG, INSTRUCTION, DOCKERFILE = "task.toml", "instruction.md", "environment/Dockerfile"
COMPOSE = ("docker-compose.yaml", "docker-compose.yml")


def is_task(folder: Path) -> bool:
    """Return whether a folder is a task, by its task.toml."""
    return (folder / CONFIG).is_file()


def find_tasks(folder: Path) -> list[Path]:
    """Return the folder itself if it is a task, else the tasks directly in it, sorted."""
    if is_task(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))


def read_task(folder: Path) -> dict[str, Any]:
    """Return a task's row: text files by name, tests and solution packed, and a hash of the environment.

    ``problem``: why a part cannot be read, if any. Raises OSError and UnicodeDecodeError for text files.
    """
    row: dict[str, Any] = {
        "folder": folder.resolve().name,
        CONFIG: (folder / CONFIG).read_text("utf-8"),
        INSTRUCTION: _text(folder / INSTRUCTION),
        DOCKERFILE: _text(folder / DOCKERFILE),
        "compose": any((folder / "environment" / name).is_file() for name in COMPOSE),
        "steps": (folder / "steps").is_dir(),
        "problem": "",
    }
    for part in ("tests", "solution", "environment"):
        try:
            files = folders.list_folder(folder / part)
            row[part] = folders.digest(files) if part == "environment" else folders.pack(files)
            row[f"{part}_files"] = sorted(files)
        except TaskFolderError as error:
            row |= {part: "", f"{part}_files": [], "problem": f"{part}: {error}"}
    return row


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None
