"""Rows as aligned lines, never cut or wrapped, because names in them are copied or piped into other commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return a line for each row, two spaces between columns; ``right``: indexes of right-aligned columns.

    A row may have fewer cells than others.
    """
    widths = [max(map(cell_len, cells)) for cells in zip_longest(*rows, fillvalue="")]
    lines = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=False)]
        cells = [gap + cell if n in right else cell + gap for n, (cell, gap) in enumerate(zip(row, gaps, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
