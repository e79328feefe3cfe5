from __future__ import annotations

import os
from pathlib import Path

import pytest

from swe_argo.steps.agents.gate import binary
from swe_argo.steps.agents.gate.binary import find_gate, is_shipped
from swe_argo.steps.settings import settings
from tests.steps.agents.gate.toolchain import needs_go


@pytest.mark.slow
@needs_go
@pytest.mark.skipif(is_shipped(), reason="it came along, and none is built")
def test_programs_of_other_checkouts_stay_but_for_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = find_gate("amd64")

    def build(folder: Path, architectures: tuple[str, ...], go: str) -> None:
        folder.mkdir()
        (folder / f"gate-{architectures[0]}").write_bytes(program)

    monkeypatch.setattr(binary, "build", build)
    monkeypatch.setenv("SWE_ARGO_HOME", str(tmp_path))
    settings.cache_clear()
    find_gate.cache_clear()
    others = [tmp_path / "gate" / f"{number:016}" for number in range(10)]
    for number, folder in enumerate(others):
        folder.mkdir(parents=True)
        (folder / "gate-amd64").touch()
        os.utime(folder / "gate-amd64", (number, number))
    try:
        assert find_gate("amd64") == program
    finally:
        settings.cache_clear()
        find_gate.cache_clear()
    assert [folder.is_dir() for folder in others] == [False] * 3 + [True] * 7
