"""Parser of an issue's text into blocks for a page: the subset of Markdown that issues use.

All other text, including HTML, comments and links, is shown verbatim, as the agent read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from swe_argo.steps.reports.text.visible import make_plain

Spans = list[tuple[str, str]]
"""(``code``, ``b`` or nothing, text)."""


@dataclass(frozen=True, slots=True)
class IssueBlock:
    """A block; ``kind``: h, p, quote, pre or ul."""

    kind: str
    spans: Spans = field(default_factory=list)
    text: str = ""
    """Text of a ``pre``."""
    items: list[Spans] = field(default_factory=list)
    """Items of a ``ul``."""


def issue_blocks(text: str) -> list[IssueBlock]:
    """Return the blocks of the text, in order."""
    lines = make_plain(text).split("\n")
    blocks: list[IssueBlock] = []
    for fenced, part in _fences(lines):
        blocks += [IssueBlock("pre", text="\n".join(part))] if fenced else _plain_blocks(part)
    return blocks


def _fences(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield (whether inside a fence, lines) in order; an unclosed fence extends to the end."""
    part: list[str] = []
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence and mark and mark.group(1).startswith(fence) and not mark.group(2).strip():
            yield True, part
            part, fence = [], ""
        elif not fence and mark:
            yield False, part
            part, fence = [], mark.group(1)
        else:
            part.append(line)
    yield bool(fence), part


def _plain_blocks(lines: list[str]) -> Iterator[IssueBlock]:
    """Yield the blocks of text outside fences: lines of one kind that follow each other are one block."""
    for kind, group in groupby(enumerate(lines), key=lambda item: _kind(lines, item[0])):
        block = [line for _, line in group]
        match kind:
            case "h":
                yield from (IssueBlock("h", _spans(line.strip().strip("#").strip())) for line in block)
            case "pre":
                yield IssueBlock("pre", text="\n".join(line[4:] for line in block))
            case "ul":
                yield IssueBlock("ul", items=[_spans(_BULLET.sub("", line)) for line in block])
            case "quote":
                yield IssueBlock("quote", _spans("\n".join(line.lstrip()[1:].strip() for line in block)))
            case "p":
                yield IssueBlock("p", _spans("\n".join(block)))


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}\s+\S")
_BULLET = re.compile(r"^ {0,3}(?:[-*+]|\d{1,3}[.)])\s+")
_SPAN = re.compile(r"(`+)(?P<code>[^`\n]+)\1|\*\*(?P<b>[^*\n]+)\*\*")


def _kind(lines: list[str], place: int) -> str:
    """Return the kind of a line by its beginning, as in IssueBlock; empty for a blank line."""
    line = lines[place]
    if not line.strip():
        return ""
    if _HEADING.match(line):
        return "h"
    if _BULLET.match(line):
        return "ul"
    if line.lstrip().startswith(">"):
        return "quote"
    return "pre" if line.startswith("    ") else "p"


def _spans(text: str) -> Spans:
    """Return the text in parts: code between backquotes, bold between asterisks, and plain text."""
    spans: Spans = []
    end = 0
    for match in _SPAN.finditer(text):
        kind = "code" if match["code"] else "b"
        spans += [("", text[end : match.start()]), (kind, match[kind])]
        end = match.end()
    return [span for span in (*spans, ("", text[end:])) if span[1]]
