"""Reading of a task's folder as a row, by the names of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swe_argo.steps.families.harbor import folders
from swe_argo.steps.families.harbor.folders import TaskFolderError

CONFIG, INSTRUCTION, DOCKERFILE = "task.toml", "instruction.md", "environment/Dockerfile"
COMPOSE = ("docker-compose.yaml", "docker-compose.yml")


def is_task(folder: Path) -> bool:
    """Return whether a folder is a task: it has a task.toml."""
    return (folder / CONFIG).is_file()


def find_tasks(folder: Path) -> list[Path]:
    """Return the folder itself, or the tasks directly in it, by name."""
    if is_task(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))


def read_task(folder: Path) -> dict[str, Any]:
    """Return a task's row: texts of its files by their names, tests and solution packed, the environment by its hash.

    ``problem`` is the reason if a part cannot be read. Raises OSError and UnicodeDecodeError for its texts.
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
