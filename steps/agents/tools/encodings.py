"""How a file writes its characters: found from its bytes, and kept when it is written again."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from swe_argo.steps.agents.tools.text import CONTROL

_MARKS = (
    ("utf-8", codecs.BOM_UTF8),
    ("utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16's, with which it begins
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)
_HEAD = 1024
"""Characters at the beginning of a file that may say how it is written (HTML's rule)."""
_DECLARED = re.compile(
    r"""\A(?:(?:.*\n)?[ \t\f]*#.*?coding[:=][ \t]*|<\?xml[^>]*?encoding=["'])"""
    r"""([-\w.]+?)(?:-(?:unix|dos|mac))?(?![-\w.])"""
)
"""In a comment of the first two lines (PEP 263, Emacs, Vim), or in XML's first."""
_MENTIONED = re.compile(r"""charset=["']?([-\w.]+)""", re.IGNORECASE)
"""HTML, gettext: better than a guess."""
_ASCII = "".join(map(chr, range(0x20, 0x7F))).replace("\\", "\\u0041")
"""What a file can be written in that begins with a line in ASCII leaves as it is (UTF-7 and escapes do not)."""


@dataclass(frozen=True)
class Encoding:
    """An encoding by its Python name, and the mark that a file in it begins with.

    In UTF-8 bytes that are no text are kept (surrogateescape).
    """

    name: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """The bytes of a file. Raises UnicodeEncodeError for a character that it cannot write."""
        return self.mark + text.encode(self.name, "surrogateescape" if self.name == "utf-8" else "strict")

    def after(self, before: str, text: str) -> Encoding:
        """What ``text`` is written in where ``before`` was in this: another if it now declares another."""
        name = _declared(text)
        return Encoding(name) if name and not self.mark and name != _declared(before) else self


def decode(data: bytes) -> tuple[str, Encoding]:
    """A file's text without its mark, and how to write it: the same text gives the same bytes again.

    By its mark; as UTF-8; as it declares; as UTF-16 without a mark, Latin-1 or Windows-1252. What is none of them, or
    mostly UTF-8, is UTF-8 whose odd bytes are kept.
    """
    for encoding in _encodings(data):
        try:
            text = data[len(encoding.mark) :].decode(encoding.name)
            same = encoding.name == "utf-8" or encoding.encode(text) == data
        except UnicodeError:
            continue
        # Data that begin with a mark by chance have no blanks or line ends where UTF-16 has them.
        if same and (not encoding.mark or not text or any(map(str.isascii, text))):
            return text, encoding
    return data.decode("utf-8", "surrogateescape"), Encoding()


def _encodings(data: bytes) -> Iterator[Encoding]:
    """Those that a file may be in, the likeliest first."""
    yield from (Encoding(name, mark) for name, mark in _MARKS if data.startswith(mark))
    head = data[:_HEAD].decode("latin-1")
    declared, mentioned = _declared(head), _MENTIONED.search(head)
    if declared and data.isascii():
        yield Encoding(declared)
    yield Encoding()
    for name in (declared, mentioned and _python_name(mentioned[1])):
        if name:
            yield Encoding(name)
    if name := _guess(data):
        yield Encoding(name)


def _guess(data: bytes) -> str | None:
    """Of text without a mark or a word about it, as editors on Windows and older ones on Unix write it."""
    if b"\0" in data:
        name = "utf-16-le" if data[1::2].count(0) > data[::2].count(0) else "utf-16-be"
        text = data.decode(name, "replace")
        return name if sum(map(str.isascii, text)) > len(text) / 2 and not CONTROL.search(text) else None
    beyond_ascii = "".join(re.findall("[^\x00-\x7f]+", data.decode("utf-8", "surrogateescape")))
    odd = sum("\udc80" <= character <= "\udcff" for character in beyond_ascii)
    if odd <= len(beyond_ascii) / 2 or CONTROL.search(data.decode("latin-1")):
        return None
    return "latin-1" if not re.search(rb"[\x80-\x9f]", data) else "cp1252"


def _declared(text: str) -> str | None:
    """The encoding that a text says it is in, where there is one of that name that begins with ASCII."""
    match = _DECLARED.match(text[:_HEAD])
    return _python_name(match[1]) if match else None


def _python_name(name: str) -> str | None:
    try:
        return codecs.lookup(name).name if _ASCII.encode().decode(name) == _ASCII else None
    except (LookupError, UnicodeError, ValueError):
        return None
