"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.steps.sandbox.ags.lab import AGSLab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[AGSLab]:
    """See ``laboratory``."""
    from tests.steps.sandbox.ags.lab import laboratory  # the extra ags may not be installed

    with laboratory(tmp_path_factory.mktemp("ags"), checkout) as lab:
        yield lab
