from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from swe_argo.steps.agents.gate import binary, compiler
from swe_argo.steps.agents.gate.binary import find_gate
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.settings import settings
from tests.steps.agents.gate.toolchain import needs_go


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user who has built no gateway, in a checkout without shipped programs."""
    monkeypatch.setattr(compiler, "SHIPPED", tmp_path / "none")
    monkeypatch.setenv("SWE_ARGO_HOME", str(tmp_path))
    settings.cache_clear()
    find_gate.cache_clear()
    yield tmp_path / "gate"
    settings.cache_clear()
    find_gate.cache_clear()


@pytest.mark.slow
@needs_go
def test_gateway_build_is_announced_once(home: Path) -> None:
    lines: list[str] = []
    program = find_gate("amd64", lines.append)
    find_gate.cache_clear()
    assert find_gate("amd64", lines.append) == program
    (line,) = lines
    assert line.startswith("building the model gateway of agent programs for amd64 with Go (once")


@pytest.mark.slow
def test_missing_go_is_one_line_with_the_way_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ConfigError, match=r"^agent: the model gateway was not built: install Go 1\.24 or newer"):
        find_gate("amd64")


def test_oldest_gateways_are_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_gateway(folder: Path, architectures: Sequence[str], go: str) -> None:
        folder.mkdir()
        (folder / f"gate-{architectures[0]}").write_bytes(b"program")

    monkeypatch.setattr(binary, "compile_gateway", compile_gateway)
    monkeypatch.setattr("swe_argo.steps.bundles.tools.go", lambda: ["go"])
    others = [home / f"{number:016}" for number in range(10)]
    for number, folder in enumerate(others):
        folder.mkdir(parents=True)
        (folder / "gate-amd64").touch()
        os.utime(folder / "gate-amd64", (number, number))
    assert find_gate("amd64") == b"program"
    assert [folder.is_dir() for folder in others] == [False] * 3 + [True] * 7
