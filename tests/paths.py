"""Paths of the checkout and of real data."""

from __future__ import annotations

from pathlib import Path

import pytest

import swe_argo

ROOT = Path(__file__).parents[1]
PACKAGES = Path(swe_argo.__file__).parents[1]
"""The folder that another Python imports ``swe_argo`` from, on PYTHONPATH."""
DATA = (ROOT / ".." / "shared" / "data").resolve()

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the real rows and logs in ../shared/data")
