"""Detection of a file's encoding from its bytes, and encoding in the same way when it is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from swe_argo.steps.agents.tools.text import CONTROL

_MARKS = (
    ("utf-8", codecs.BOM_UTF8),
    ("utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16, whose mark is its prefix
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)
_HEAD = 1024
"""Characters at a file's beginning that may declare its encoding (HTML's rule)."""
_DECLARED = re.compile(
    r"""\A(?:(?:.*\n)?[ \t\f]*#.*?coding[:=][ \t]*|<\?xml[^>]*?encoding=["'])"""
    r"""([-\w.]+?)(?:-(?:unix|dos|mac))?(?![-\w.])"""
)
"""Declaration in a comment of the first two lines (PEP 263, Emacs, Vim), or in the first line of XML."""
_MENTIONED = re.compile(r"""charset=["']?([-\w.]+)""", re.IGNORECASE)
"""Mention of a charset in HTML or gettext: better than a guess."""
_ASCII = "".join(map(chr, range(0x20, 0x7F))).replace("\\", "\\u0041")
"""Characters that an encoding must leave unchanged to be usable after an ASCII line (UTF-7 and escapes do not)."""


@dataclass(frozen=True)
class Encoding:
    """An encoding by its Python name, and the byte order mark at the file's beginning.

    Invalid bytes in UTF-8 are kept (surrogateescape).
    """

    name: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """Return the bytes of a file. Raises UnicodeEncodeError if the encoding lacks a character."""
        return self.mark + text.encode(self.name, "surrogateescape" if self.name == "utf-8" else "strict")

    def after_edit(self, before: str, text: str) -> Encoding:
        """Return the encoding for ``text``, the edited form of ``before``: a newly declared one, else this one."""
        name = _declared(text)
        return Encoding(name) if name and not self.mark and name != _declared(before) else self


def decode(data: bytes) -> tuple[str, Encoding]:
    """Return a file's text without its mark, and its encoding, which gives the same bytes again.

    Candidates in order: the mark's encoding, UTF-8, a declared one, UTF-16 without a mark, Latin-1 or Windows-1252.
    Otherwise, and for mostly valid UTF-8, the result is UTF-8 with the invalid bytes kept.
    """
    for encoding in _encodings(data):
        try:
            text = data[len(encoding.mark) :].decode(encoding.name)
            same = encoding.name == "utf-8" or encoding.encode(text) == data
        except UnicodeError:
            continue
        # Data that start with a mark by chance lack blanks and line ends at UTF-16's positions.
        if same and (not encoding.mark or not text or any(map(str.isascii, text))):
            return text, encoding
    return data.decode("utf-8", "surrogateescape"), Encoding()


def _encodings(data: bytes) -> Iterator[Encoding]:
    """Yield candidate encodings, the likeliest first: byte order mark, UTF-8, declared, mentioned, guessed."""
    yield from (Encoding(name, mark) for name, mark in _MARKS if data.startswith(mark))
    head = data[:_HEAD].decode("latin-1")
    declared, mentioned = _declared(head), _MENTIONED.search(head)
    if declared and data.isascii():  # ASCII is valid UTF-8, too, but text added later must fit the declaration
        yield Encoding(declared)
    yield Encoding()
    for name in (declared, mentioned and _python_name(mentioned[1])):
        if name:
            yield Encoding(name)
    if name := _guess(data):
        yield Encoding(name)


def _guess(data: bytes) -> str | None:
    """Return an encoding for text without mark or declaration, as editors on Windows and old ones on Unix write."""
    if b"\0" in data:
        name = "utf-16-le" if data[1::2].count(0) > data[::2].count(0) else "utf-16-be"
        text = data.decode(name, "replace")
        return name if sum(map(str.isascii, text)) > len(text) / 2 and not CONTROL.search(text) else None
    beyond_ascii = "".join(re.findall("[^\x00-\x7f]+", data.decode("utf-8", "surrogateescape")))
    # Bytes that are not UTF-8. If there are few, the file is UTF-8 with errors.
    odd = sum("\udc80" <= character <= "\udcff" for character in beyond_ascii)
    if odd <= len(beyond_ascii) / 2 or CONTROL.search(data.decode("latin-1")):
        return None
    return "latin-1" if not re.search(rb"[\x80-\x9f]", data) else "cp1252"  # 0x80 to 0x9f: controls in Latin-1


def _declared(text: str) -> str | None:
    """Return the declared encoding if Python has it and it is a superset of ASCII."""
    match = _DECLARED.match(text[:_HEAD])
    return _python_name(match[1]) if match else None


def _python_name(name: str) -> str | None:
    """Return Python's name of an encoding; None if it is unknown, or no superset of ASCII."""
    try:
        return codecs.lookup(name).name if _ASCII.encode().decode(name) == _ASCII else None
    except (LookupError, UnicodeError, ValueError):
        return None
