"""A home of this machine's bundles that is empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.settings import settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SWE_ARGO_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    yield tmp_path / "home"
    settings.cache_clear()
