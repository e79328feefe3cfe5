"""Sanitizing of hostile text: control characters, text direction and size. Templates escape HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Control characters, and characters that a browser acts on or hides without drawing them: C1 controls, text direction,
# zero width, separators, surrogates (undecodable bytes of a patch, PEP 383), non-characters and tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")


def make_visible(text: str) -> str:
    """Return ``text`` with control characters as pictures (NUL is ␀, ESC is ␛) and hidden ones as escapes."""
    return _INVISIBLE.sub(_escape, text)


def make_plain(text: str) -> str:
    """Return terminal output as ``make_visible`` does, without colours and bold, and with Unix line ends."""
    return make_visible(_COLOUR.sub("", text).replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    r"""Return a visible form: a control picture, \xNN for a byte or a C1 control, else \uNNNN."""
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


WHOLE = 1 << 62
"""A width or count without limit."""


def cut_line(line: str, width: int) -> str:
    """Return the line, or its first ``width`` characters and the number of further ones."""
    return line if len(line) <= width else f"{line[:width]} … {len(line) - width:,} more characters"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Part of a text that is too long to show."""

    lines: tuple[str, ...]
    """Sanitized for display, each cut to a width."""
    left_out: int
    """Number of lines that are not included."""


NOTHING = Excerpt((), 0)


def patch_head(data: bytes, lines: int, width: int) -> Excerpt:
    """Return the first lines of a patch, without decoding the others."""
    total = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    pieces = data.split(b"\n", lines)[: min(lines, total)]
    return Excerpt(tuple(_line(piece, width) for piece in pieces), total - len(pieces))


_END_MARKER = b">>>>> End Test Output"


def log_tail(data: bytes, lines: int, width: int) -> Excerpt:
    """Return the last lines of a log up to the end marker; output of the script's clean-up follows it."""
    end = data.rfind(_END_MARKER)
    if end >= 0:
        data = data[: data.find(b"\n", end) + 1 or len(data)]
    data = data.rstrip(b"\n")
    if not data:
        return NOTHING
    pieces = data.rsplit(b"\n", lines)[-lines:]
    return Excerpt(tuple(_line(piece, width) for piece in pieces), data.count(b"\n") + 1 - len(pieces))


def _line(piece: bytes, width: int) -> str:
    """Return a line of raw bytes, sanitized and cut; a very long one is cut before it is decoded."""
    if len(piece) <= 4 * width:
        return cut_line(make_visible(piece.decode(errors="surrogateescape").removesuffix("\r")), width)
    text = make_visible(piece[: 4 * width].decode(errors="surrogateescape"))[:width]
    return f"{text} … {len(piece) - width:,} more bytes"
