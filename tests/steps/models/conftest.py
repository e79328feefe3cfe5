"""An environment without models: tests ask only their own servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swe_argo.steps.settings import settings
from tests.one_certificate import one_certificate

__all__ = ["one_certificate"]

NAMES = (
    "LLM_API_KEY", "OPENAI_API_KEY", "LLM_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "SWE_ARGO_LIMITER",
    "SWE_ARGO_UNITS", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Remove the variables of models; settings are read again."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()
