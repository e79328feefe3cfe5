"""Writes a chart's README.md: README.in.md with a table of the values in place of its line ``<!-- values -->``.

usage: readme.py CHART [--check]

A value's text is its ``# -- `` comment in values.yaml, which goes on in the ``#`` lines below it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MARK = "<!-- values -->"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][\w-]*):")


class Value(NamedTuple):
    """A value that a person may set: its dotted name, its default, and what it is for."""

    name: str
    default: Any
    text: str


def values(source: str) -> Iterator[Value]:
    """The documented values of a values.yaml, in its order. Raises ValueError for one without its text."""
    defaults, path, text = yaml.safe_load(source), list[str](), list[str]()
    inside = -1  # the indent of the last value: what lies deeper is part of its default
    for line in source.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            text = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("# ") and text:
            text.append(stripped.removeprefix("# "))
        elif found := _KEY.match(line):
            indent = len(found["indent"])
            if inside >= 0 and indent > inside:
                continue
            path[indent // 2 :] = [found["key"]]
            default = defaults
            for key in path:
                default = default[key]
            if text:
                yield Value(".".join(path), default, " ".join(text))
                inside = indent
            elif isinstance(default, dict) and default:
                inside = -1
            else:
                raise ValueError(f"{'.'.join(path)} has no `# -- ` comment")
            text = []


def readme(chart: Path) -> str:
    """What README.md should be."""
    rows = ["| Value | Default | What it is |", "| --- | --- | --- |"]
    for value in values((chart / "values.yaml").read_text()):
        rows.append(f"| `{value.name}` | `{json.dumps(value.default)}` | {value.text} |")
    head, mark, tail = (chart / "README.in.md").read_text().partition(MARK)
    if not mark:
        raise ValueError(f"{chart / 'README.in.md'} has no line {MARK}")
    return head + "\n".join(rows) + tail


def main() -> None:
    """Write the README, or say that it should be written."""
    chart, check = Path(sys.argv[1]), "--check" in sys.argv[2:]
    text = readme(chart)
    if not check:
        (chart / "README.md").write_text(text)
    elif (chart / "README.md").read_text() != text:
        sys.exit(f"{chart / 'README.md'} is not what its values say: {sys.executable} {' '.join(sys.argv[:-1])}")


if __name__ == "__main__":
    main()
