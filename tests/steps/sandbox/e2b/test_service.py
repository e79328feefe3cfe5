"""The variables of E2B's guide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.e2b.service import service_address, service_options
from swe_argo.steps.settings import settings
from swe_argo.workflows.api import variables


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("E2B_DOMAIN", "E2B_API_URL", "E2B_CONNECTION_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("E2B_API_KEY", "e2b_key")
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_settings_come_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (service_options()["api_key"], service_options()["request_timeout"]) == ("e2b_key", 60)
    assert service_address() == "https://api.e2b.app"
    monkeypatch.setenv("E2B_DOMAIN", "sandboxes.example")
    monkeypatch.setenv("E2B_CONNECTION_TIMEOUT", "7.5")
    settings.cache_clear()
    assert (service_address(), service_options()["request_timeout"]) == ("https://api.sandboxes.example", 7.5)
    monkeypatch.setenv("E2B_API_URL", "https://control.example/e2b")
    settings.cache_clear()
    assert service_address() == "https://control.example/e2b"


def test_invalid_timeout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_CONNECTION_TIMEOUT", "0")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="E2B_CONNECTION_TIMEOUT"):
        settings()


def test_key_is_stripped_and_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", " e2b_key\n")
    settings.cache_clear()
    assert service_options()["api_key"] == "e2b_key"
    for broken in ("e2b_k\ney", "e2b_kéy"):
        monkeypatch.setenv("E2B_API_KEY", broken)
        settings.cache_clear()
        with pytest.raises(ConfigError, match="E2B_API_KEY: it contains a space, a line break or") as caught:
            settings()
        assert broken not in f"{caught.value} {caught.value.detail}"
    monkeypatch.setenv("E2B_API_KEY", "\n")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="set E2B_API_KEY"):
        service_options()


def test_runtime_sets_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME", "E2B")
    tables: dict[str, Any] = {}
    variables.apply_environment(tables)
    assert tables["sandbox"] == {"backend": "e2b"}
