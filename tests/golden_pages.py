"""Golden pages: the HTML that a renderer wrote last, without styles and scripts, compared line by line.

``SWE_ARGO_UPDATE_GOLDEN=1 pytest ...`` writes them again; review the difference before committing it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

UPDATE = "SWE_ARGO_UPDATE_GOLDEN"


def check_golden_page(page: str | bytes, golden: Path) -> None:
    """Compare a page with a golden file, or write the file if the environment asks for it."""
    text = page.decode() if isinstance(page, bytes) else page
    text = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", text, flags=re.DOTALL)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if os.environ.get(UPDATE):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("\n".join([*lines, ""]), "utf-8")
    assert lines == golden.read_text("utf-8").splitlines(), f"{golden.name} differs; if intended, set {UPDATE}=1"
