"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.steps.sandbox.e2b.lab import E2BLab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[E2BLab]:
    """See ``laboratory``."""
    from tests.steps.sandbox.e2b.lab import laboratory  # the extra e2b may not be installed

    with laboratory(tmp_path_factory.mktemp("e2b"), checkout) as lab:
        yield lab
