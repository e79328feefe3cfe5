"""Retrieved files of an issue in a row's columns, for agents that are shown files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from swe_argo.steps.contracts.data import FileContext

Row = dict[str, Any]
Style = Literal["style-2", "style-2-edits-only", "style-3"]

COLUMNS: Final = ("file_contents", "text", "hits", "retrieved_files")
"""The columns with retrieved files; the first that holds any wins. ``file_contents`` and ``readmes`` {path: text} and
``hits`` [{docid, score}] are swebench's own (inference/make_datasets); ``text`` is the finished prompt of its published
datasets (SWE-bench_bm25_13K, SWE-bench_oracle), from which the files are taken; ``retrieved_files`` is a list of
paths."""
EDITS_ONLY: Final = "style-2-edits-only"
_FILE: Final = re.compile(r"^\[start of ([^\n]+)\]\n(.*?)\n\[end of \1\]$", re.DOTALL | re.MULTILINE)
_LINES_ABOVE: Final = 15


def file_context(row: Row, style: Style) -> list[FileContext] | None:
    """Return the files to show, known READMEs first, then in the column's order; None if no column names any.

    Under style-2-edits-only each file has the windows around the hunks of the reference patch, as swebench counts them,
    and files that the patch does not change are left out.
    """
    files = next((contexts for column in COLUMNS if (contexts := _READERS[column](row))), None)
    if files is None or style != EDITS_ONLY:
        return files
    windows = _windows(row["patch"])
    return [
        file if file.readme else file.model_copy(update={"windows": windows[file.path]})
        for file in files
        if file.readme or file.path in windows
    ]


def notices(dataset: str, style: Style, rows: Iterable[Row]) -> list[str]:
    """Return warnings for a run that shows files: leaked and missing information."""
    lines = []
    if style == EDITS_ONLY:
        lines.append("prompt style style-2-edits-only shows the agent which lines the reference patch touches")
    if "oracle" in dataset.lower():
        lines.append(f"by its name {dataset} shows the agent which files the reference patch touches")
    rows = list(rows)
    if without := sum(file_context(row, "style-3") is None for row in rows):
        lines.append(
            f"{without} of {len(rows)} rows name no retrieved files ({', '.join(COLUMNS)}): "
            "agent oneshot sees their issue and READMEs only"
        )
    return lines


def _contents(row: Row) -> list[FileContext]:
    files = _texts(row.get("file_contents"))
    return [FileContext(path=path, text=text, readme=readme) for readme, path, text in _with_readmes(row, files)]


def _with_readmes(row: Row, files: dict[str, str]) -> list[tuple[bool, str, str]]:
    if not files:
        return []
    readmes = [(True, path, text) for path, text in _texts(row.get("readmes")).items()]
    return [*readmes, *((False, path, text) for path, text in files.items())]


def _prompt(row: Row) -> list[FileContext]:
    """Return the files in a finished prompt. Their lines are numbered, so their content cannot be taken for a frame."""
    text = row.get("text")
    if not isinstance(text, str):
        return []
    issue = f"\n<issue>\n{row['problem_statement']}\n</issue>\n"
    _, start_tag, rest = text.partition(issue if issue in text else "\n</issue>\n")
    code, end_tag, _ = rest.rpartition("\n</code>\n")
    if not start_tag or not end_tag:
        return []
    files: list[tuple[str, str]] = []
    for path, numbered in _FILE.findall(code):
        lines = [line.partition(" ") for line in numbered.split("\n")]
        if [number for number, _, _ in lines] != [str(number) for number in range(1, len(lines) + 1)]:
            return []  # another layout: whole files without numbers, or windows of them
        files.append((path, "\n".join(line for _, _, line in lines)))
    # An empty block is an empty line.
    no_readmes, no_files = code.lstrip("\n").startswith("<code>\n\n"), code.endswith("\n")
    readmes = 0 if no_readmes else min(_readmes([path for path, _ in files]), len(files) - (not no_files))
    return [FileContext(path=path, text=text, readme=n < readmes) for n, (path, text) in enumerate(files)]


def _readmes(paths: list[str]) -> int:
    """Count the READMEs in front: both blocks are sorted, so a step back begins the second."""
    block = next((n for n in range(1, len(paths)) if paths[n] <= paths[n - 1]), len(paths))
    others = next((n for n, path in enumerate(paths) if not is_readme(path)), len(paths))
    return min(block, others)


def _hits(row: Row) -> list[FileContext]:
    return [FileContext(path=path) for hit in _list(row.get("hits")) if (path := _path(hit))]


def _named_files(row: Row) -> list[FileContext]:
    return [FileContext(path=path) for hit in _list(row.get("retrieved_files")) if (path := _path(hit))]


_READERS: Final = {"file_contents": _contents, "text": _prompt, "hits": _hits, "retrieved_files": _named_files}


def is_readme(path: str) -> bool:
    """Return whether swebench shows a path as a README: in the repository's own folder, by the start of its name."""
    return "/" not in path and path.lower().startswith("readme")


def _path(hit: object) -> str:
    if isinstance(hit, Mapping):
        hit = hit.get("docid") or hit.get("path")
    return hit if isinstance(hit, str) else ""


def _list(value: object) -> list[Any]:
    value = _parsed(value)
    return value if isinstance(value, list) else []


def _texts(value: object) -> dict[str, str]:
    """Return {path: text}; parquet has every path of every row, with null for those of other rows."""
    value = _parsed(value)
    if not isinstance(value, Mapping):
        return {}
    return {str(path): text for path, text in value.items() if isinstance(text, str)}


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _windows(patch: str) -> dict[str, list[tuple[int, int]]]:
    """Return path -> lines (from 1, inclusive): swebench's slice [hunk - 15 : hunk + its length], counted from 0."""
    import unidiff

    patch = patch.removeprefix("<patch>\n").removesuffix("\n</patch>")  # as its text datasets wrap it
    windows: dict[str, list[tuple[int, int]]] = {}
    for file in unidiff.PatchSet(patch):
        path = file.source_file.split("a/", 1)[-1]
        starts = [(hunk.source_start - _LINES_ABOVE, hunk.source_length) for hunk in file]
        windows[path] = [(start + 1, start + length + _LINES_ABOVE) for start, length in starts]
    return windows
