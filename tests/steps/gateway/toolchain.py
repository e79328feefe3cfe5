"""A mark for tests that need the gateway's program, built or to be built with Go."""

from __future__ import annotations

import shutil

import pytest

from swe_argo.steps.gateway import binary

needs_go = pytest.mark.skipif(
    shutil.which("go") is None and not binary.is_shipped(), reason="needs Go, or the step image"
)
