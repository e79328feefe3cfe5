"""Where the tests find real data, and what to say where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = (ROOT / ".." / "shared" / "data").resolve()

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the real rows and logs in ../shared/data")
