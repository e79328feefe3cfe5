"""An issue's images in the first message, as endpoints of OpenAI's kind take them, and in the trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_DATA = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{_DATA}"
"""An image of one pixel."""
_SHOWN = 300
"""Characters of an address that a trajectory keeps: one that is the image itself may have millions."""


def with_images(text: str, images: Sequence[str]) -> list[dict[str, Any]]:
    """The content of a message: the text, then the images by their addresses."""
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in images)]


def text_of(content: object) -> str:
    """The text of a message's content, with images in it or without."""
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in content)
    return str(content or "")


def describe_images(images: Sequence[str]) -> str:
    """What a trajectory says of images that a message showed."""
    lines = (f"[image: {url if len(url) <= _SHOWN else url[:_SHOWN] + '...'}]" for url in images)
    return "".join(f"\n{line}" for line in lines)
