"""Cases of a parametrized test of which ``make test`` tries a few, and ``make test-long`` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long_unless(quick: Collection[str], names: Iterable[str]) -> list[Any]:
    """``names`` as parameters, all of them long but the ``quick`` ones."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.long) for name in names]
