"""The contrast of the colours that drawings are made of, as the style sheet has them."""

from __future__ import annotations

import re

import pytest

from swe_argo.steps.reports.labels import STANDINGS
from swe_argo.steps.reports.page.templating import PAGE_FOLDER

LEAST_CONTRAST = 3.0
"""Of graphical objects (WCAG 2.2, 1.4.11)."""
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): #([0-9a-f]{6})\b", block))
    for block in re.findall(r":root {(.*?)\n *}", (PAGE_FOLDER / "page.css").read_text(), re.DOTALL)[:2]
)
TONES = sorted({label.tone for label in STANDINGS.values()} | {"waiting", "absent", "accent"})


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour in sRGB (WCAG 2.2)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_graphic_colours_reach_3_to_1(colours: dict[str, str]) -> None:
    ratios = {
        (tone, ground): contrast(colours[tone], colours[ground]) for tone in TONES for ground in ("paper", "panel")
    }
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < LEAST_CONTRAST} == {}
