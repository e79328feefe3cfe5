"""Sites in data files: words of the output that whole-file tests, snapshots and doctests expect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from swe_argo.steps.grading.twins.sites import WORD, Site

_OUTPUT = re.compile(
    r"(?:.*/)?(?:__snapshots__|snapshots|expected|after-[\w-]+|messages-[\w-]+)/.+"
    r"|(?:.*/)?(?:output|expected)\.\w+|.+\.(?:snap|ambr|expected)|(?:.*/)?tests/functional/.+\.txt"
)
"""Files that hold nothing but expected output: of Jest, insta, syrupy, Lombok, Babel, pylint."""
_DOCTESTS = re.compile(r".+\.(?:rst|txt|md)")
_JQ = re.compile(r"(?:.*/)?tests/.+\.test")
"""Files with tests of jq."""
_RUN = re.compile(rb"(?<![\w.-])(?:[A-Za-z]{3,}|\d+)(?![\w.-])")


def is_data(path: str) -> bool:
    """Return whether tests may expect the content of the file, byte for byte."""
    return any(pattern.fullmatch(path) for pattern in (_OUTPUT, _DOCTESTS, _JQ))


def find_words(path: str, source: bytes, added_lines: Collection[int]) -> list[Site]:
    """Return the words and numbers of the expected output on added lines, each a site.

    It is not known here which test reads a file: the reference patch shows it.
    """
    lines = source.split(b"\n")
    sites, start = [], 0
    expected = set(_list_expected(path, lines))
    for number, line in enumerate(lines, 1):
        if number in added_lines and number in expected:
            for match in _RUN.finditer(line):
                span = (start + match.start(), start + match.end())
                sites.append(
                    Site(
                        path=path,
                        test=path,
                        row=None,
                        spans=(span,),
                        text=match[0].decode(),
                        kind=WORD,
                        strong=True,
                        root=span,
                        scope=((start, start + len(line)),),
                    )
                )
        start += len(line) + 1
    return sites


def _list_expected(path: str, lines: list[bytes]) -> Iterator[int]:
    """Yield the numbers of the lines that are expected output."""
    if _OUTPUT.fullmatch(path):
        # insta and similar tools do not compare the head of a snapshot.
        head = lines.index(b"---", 1) + 1 if lines[:1] == [b"---"] and b"---" in lines[1:] else 0
        yield from range(head + 1, len(lines) + 1)
    elif _JQ.fullmatch(path):
        yield from _list_results(lines)
    else:
        yield from _list_outputs(lines)


def _list_results(lines: list[bytes]) -> Iterator[int]:
    """Yield the lines of results in jq's tests: blocks of a program, its input and its results."""
    place = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            place = 0
        elif not line.lstrip().startswith(b"#"):
            place = -len(lines) if line.startswith(b"%%") else place + 1  # a program that must fail has no result
            if place > 2:  # after the program and its input
                yield number


def _list_outputs(lines: list[bytes]) -> Iterator[int]:
    """Yield the lines that doctests expect."""
    is_output = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith((b">>>", b"... ")) or text == b"...":
            is_output = True
        elif not text:
            is_output = False
        elif is_output:
            yield number
