"""Images of an issue, in the first message (OpenAI's format) and in the trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_DATA = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{_DATA}"
"""Image of one pixel."""
_SHOWN = 300
"""Longest image URL in a trajectory, in characters: a data URL may have millions."""


def with_images(text: str, images: Sequence[str]) -> list[dict[str, Any]]:
    """Return a message's content: the text, then the images by their URLs."""
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in images)]


def text_of(content: object) -> str:
    """Return the text of a message's content, without its images."""
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in content)
    return str(content or "")


def describe_images(images: Sequence[str]) -> str:
    """Return the lines that stand for a message's images in a trajectory."""
    lines = (f"[image: {url if len(url) <= _SHOWN else url[:_SHOWN] + '...'}]" for url in images)
    return "".join(f"\n{line}" for line in lines)
