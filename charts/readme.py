"""Writes a chart's README.md from README.md.gotmpl: the table of its values as helm-docs does, and of its arguments.

usage: readme.py CHART [--check]

The comments of values.yaml and the table are those of helm-docs (``--sort-values-order file``), so that nobody needs Go
to check them: a value's text is its ``# -- `` comment, which goes on in the ``#`` lines below it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

TABLE = '{{ template "chart.valuesTable" . }}'
ARGUMENTS = '{{ template "chart.argumentsTable" . }}'
TYPES = {str: "string", bool: "bool", int: "int", float: "float", list: "list", dict: "object", type(None): "string"}


def rows(source: str) -> Iterator[str]:
    """Yield the lines of the table of a values.yaml. Raises ValueError for a value without a comment."""
    yield "| Key | Type | Default | Description |"
    yield "|-----|------|---------|-------------|"
    yield from _rows(yaml.compose(source, yaml.SafeLoader), yaml.safe_load(source), source.splitlines(), "")


def _rows(node: yaml.MappingNode, values: dict[str, Any], lines: list[str], path: str) -> Iterator[str]:
    for key, below in node.value:
        value, name = values[key.value], f"{path}{key.value}"
        comment = takewhile(lambda line: line.startswith("#"), map(str.strip, reversed(lines[: key.start_mark.line])))
        text = " ".join(line[1:].strip() for line in reversed(list(comment)))
        if text.startswith("-- "):
            default = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
            default = "nil" if value is None else default
            yield f"| {name} | {TYPES[type(value)]} | `{default}` | {text.removeprefix('-- ')} |"
        elif value and isinstance(value, dict):
            yield from _rows(below, value, lines, f"{name}.")
        else:
            raise ValueError(f"{name} has no `# -- ` comment")


def arguments(source: str) -> Iterator[str]:
    """Yield the lines of the table of an arguments.yaml."""
    yield "| WorkflowTemplate | Argument | Allowed values | Description |"
    yield "|------------------|----------|----------------|-------------|"
    for template, template_arguments in yaml.safe_load(source).items():
        for name, argument in template_arguments.items():
            if "choices" in argument:
                allowed = ", ".join(f"`{choice}`" if choice else "nothing" for choice in argument["choices"])
            else:
                allowed = PATTERNS[argument["pattern"]]
            if "limit" in argument:
                allowed += f", at most `limits.{argument['limit']}`"
            yield f"| {template} | {name} | {allowed} | {argument['description']} |"


PATTERNS = {
    r"^[^\x00-\x1f\x7f]*$": "text of one line",
    r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$": "text",
    r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$": "letters, digits, `.`, `_` and `-`, at most 63",
    r"^-?[0-9]{1,6}$": "a whole number",
    r"^[0-9]{1,6}$": "a whole number from 0",
    r"^([1-9][0-9]{0,5}([.][0-9]{1,6})?|0?[.][0-9]*[1-9][0-9]*)$": "a number above 0",
}
"""Pattern of a value -> the same for people."""


def readme(chart: Path) -> str:
    """Return the text of the chart's README.md."""
    text = (chart / "README.md.gotmpl").read_text()
    text = text.replace(TABLE, "\n".join(rows((chart / "values.yaml").read_text())))
    return text.replace(ARGUMENTS, "\n".join(arguments((chart / "arguments.yaml").read_text())))


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
