"""The check that names the test which left a file open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

TESTS = """
import gc

class Node:
    pass

def test_cycle():
    node = Node()
    node.itself, node.file = node, open("/dev/null")

def test_after_the_cycle():
    gc.collect()

def test_failure():
    file = open("/dev/null")
    assert not file

def test_after_the_failure():
    gc.collect()
"""


def test_leak_is_blamed_on_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-m", "pytest", "-p", "tests.conftest", "-W", "error", "-q", str(tmp_path), "--rootdir", str(tmp_path)]
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("ERROR", "FAILED"))]
    blamed = {line.split(" - ")[0].rpartition("::")[2] for line in lines}
    assert blamed == {"test_cycle", "test_failure"}, result.stdout
    assert "left open: unclosed file" in result.stdout
