"""The gold patch of an R2E-Gym row: its parsed commit in git's format."""

from __future__ import annotations

from itertools import takewhile
from typing import Literal

from pydantic import BaseModel, ValidationError
from typing_extensions import override

from swe_argo.steps.families.columns import SourceRow, bad_column, read_json
from swe_argo.steps.families.r2e.rows import instance_id, is_test_path

_SIGN = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}


class _ParsedLine(BaseModel):
    content: str
    type: Literal["context", "added", "deleted", "note"]


class _ParsedLineGroup(BaseModel):
    all_lines: list[_ParsedLine]


class _ParsedRange(BaseModel):
    start: int
    length: int | None = None

    @override
    def __str__(self) -> str:
        return f"{self.start}" if self.length is None else f"{self.start},{self.length}"

    @property
    def count(self) -> int:
        return 1 if self.length is None else self.length


class _ParsedDescriptor(BaseModel):
    old_range: _ParsedRange
    new_range: _ParsedRange
    section: str = ""


class _ParsedHunk(BaseModel):
    descriptor: _ParsedDescriptor
    line_group: _ParsedLineGroup


class _ParsedFile(BaseModel):
    path: str


class _ParsedHeader(BaseModel):
    file: _ParsedFile
    misc_line: str | None = None


class _ParsedIndex(BaseModel):
    old_commit_hash: str
    new_commit_hash: str
    mode: str = ""


class _ParsedFileDiff(BaseModel):
    header: _ParsedHeader
    index_line: _ParsedIndex | None = None
    is_binary_file: bool = False
    minus_file: _ParsedFile | None = None
    plus_file: _ParsedFile | None = None
    hunks: list[_ParsedHunk] = []


class _ParsedCommit(BaseModel):
    file_diffs: list[_ParsedFileDiff]


def gold_patch(row: SourceRow) -> str:
    """Return the fix as a unified diff against the image: the commit's Python files without tests. Raises ConfigError.

    As in R2E-Gym (commit_models/diff_classes.py, ``ParsedCommit.get_patch(test_file=False)``); the commits' other
    files are texts and settings (``is_only_python_edit``).
    """
    name, column = instance_id(row), "parsed_commit_content"
    try:
        commit = _ParsedCommit.model_validate(read_json(row, column, name))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "it"
        raise bad_column(name, column, f"is not a parsed commit: {place}: {first['msg']}") from None
    files = [diff for diff in commit.file_diffs if diff.header.file.path.endswith(".py")]
    fix = [diff for diff in files if not is_test_path(diff.header.file.path)]
    if not fix:
        raise bad_column(name, column, "changes no Python file outside the tests: there is no gold patch")
    try:
        return "".join(_render_file(diff) for diff in fix)
    except ValueError as error:
        raise bad_column(name, column, str(error)) from None


def _render_file(diff: _ParsedFileDiff) -> str:
    """Return a file's diff. Raises ValueError for a binary file and for a hunk of another length than stated."""
    if diff.is_binary_file:
        raise ValueError(f"has {diff.header.file.path} as a binary file, without its content")
    old, new = _header_names(diff)
    lines = [f"diff --git {old} {new}"]
    if diff.header.misc_line:
        lines.append(diff.header.misc_line)
    if index := diff.index_line:
        lines.append(f"index {index.old_commit_hash}..{index.new_commit_hash} {index.mode}".rstrip())
    if diff.minus_file and diff.plus_file:
        lines += [f"--- {diff.minus_file.path}", f"+++ {diff.plus_file.path}"]
    for hunk in diff.hunks:
        lines += _render_hunk(hunk, diff.header.file.path)
    return "\n".join(lines) + "\n"


def _header_names(diff: _ParsedFileDiff) -> tuple[str, str]:
    """Return the names in the first line: of a rename, else of ``---`` and ``+++``, else of the path."""
    path = diff.header.file.path
    quote = '"' if "\\" in path else ""
    old, new = (f"{quote}{side}/{path}{quote}" for side in "ab")
    if diff.minus_file and diff.minus_file.path != "/dev/null":
        old = diff.minus_file.path.removesuffix("\t")  # here, git does not add a tab after a name with a blank
    if diff.plus_file and diff.plus_file.path != "/dev/null":
        new = diff.plus_file.path.removesuffix("\t")
    for line in (diff.header.misc_line or "").split("\n"):
        if line.startswith("rename from "):
            old = _add_side("a", line.removeprefix("rename from "))
        elif line.startswith("rename to "):
            new = _add_side("b", line.removeprefix("rename to "))
    return old, new


def _add_side(side: str, name: str) -> str:
    return f'"{side}/{name[1:]}' if name.startswith('"') else f"{side}/{name}"


def _render_hunk(hunk: _ParsedHunk, path: str) -> list[str]:
    """Render a hunk of the header's length, since a commit's last hunk was parsed with an extra empty line.

    Raises ValueError if the lines do not give that length.
    """
    place = hunk.descriptor
    old, new = place.old_range.count, place.new_range.count
    remaining = iter(hunk.line_group.all_lines)
    lines = [f"@@ -{place.old_range} +{place.new_range} @@ {place.section}".rstrip(" ")]
    while old > 0 or new > 0:
        line = next(remaining, None)
        if line is None:
            raise ValueError(f"has a hunk of {path} that is shorter than its header says")
        old -= line.type in ("context", "deleted")
        new -= line.type in ("context", "added")
        lines.append(_SIGN[line.type] + line.content)
    if old or new:
        raise ValueError(f"has a hunk of {path} that is longer than its header says")
    return lines + [_SIGN["note"] + line.content for line in takewhile(lambda line: line.type == "note", remaining)]
