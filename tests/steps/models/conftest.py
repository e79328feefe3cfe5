"""Models are asked at servers of the tests' own, whatever the environment of this machine says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swe_argo.steps.settings import settings

NAMES = (
    "LLM_API_KEY", "OPENAI_API_KEY", "LLM_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "SWE_ARGO_LIMITER",
    "SWE_ARGO_UNITS", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Nothing of a model in the environment; what a test sets is read anew."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()
