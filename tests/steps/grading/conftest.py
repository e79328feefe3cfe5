"""A small repository as an image of backend local, machines made of it, and the real logs where they are."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import LocalSpec, SandboxSpec
from swe_argo.steps.sandbox import open_backend
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.paths import DATA

IMAGE = "acme/calc"
MODULE = "def add(a, b):\n    return a - b\n\n\ndef subtract(a, b):\n    return a - b\n\n\nVERSION = 1\n"
TESTS = "from calc import add, subtract\n\n\ndef test_subtracts():\n    assert subtract(3, 2) == 1\n"
TEST_PATCH = """diff --git a/tests/test_calc.py b/tests/test_calc.py
--- a/tests/test_calc.py
+++ b/tests/test_calc.py
@@ -5,2 +5,6 @@
 def test_subtracts():
     assert subtract(3, 2) == 1
+
+
+def test_adds():
+    assert add(3, 2) == 5
"""
GOLD = (
    b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n def add(a, b):\n"
    b"-    return a - b\n+    return a + b\n \n \n def subtract(a, b):\n"
)


def git(folder: Path, *words: str) -> str:
    """Run git as somebody; its output."""
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    result = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return result.stdout.strip()


FOUR_TESTS = """diff --git a/tests/test_calc.py b/tests/test_calc.py
--- a/tests/test_calc.py
+++ b/tests/test_calc.py
@@ -5,2 +5,18 @@
 def test_subtracts():
     assert subtract(3, 2) == 1
+
+
+def test_adds():
+    assert add(30, 22) == 52
+
+
+def test_adds_one():
+    assert add(1, 63) == 64
+
+
+def test_adds_twice():
+    assert add(add(11, 12), 50) == 73
+
+
+def test_adds_three_digits():
+    assert add(700, 38) == 738
"""
"""Four FAIL_TO_PASS tests, which two confirmation runs are enough for."""
FOUR = [f"tests/test_calc.py::test_{name}" for name in ("adds", "adds_one", "adds_twice", "adds_three_digits")]


def eval_script(
    base: str,
    command: str = "python -m pytest -p no:cacheprovider -rA tests/test_calc.py",
    test_patch: str = TEST_PATCH,
) -> str:
    """The official shape of a script."""
    return f"""#!/bin/bash
set -uxo pipefail
cd /testbed
git status
git show
git -c core.fileMode=false diff {base}
git checkout {base} tests/test_calc.py
git apply -v - <<'EOF_0123456789ab'
{test_patch}
EOF_0123456789ab
: '>>>>> Start Test Output'
{command}
: '>>>>> End Test Output'
git checkout {base} tests/test_calc.py
"""


class Lab:
    """The image, its base commit, and machines."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self.testbed = images / IMAGE.replace("/", "__") / "testbed"
        (self.testbed / "tests").mkdir(parents=True)
        (self.testbed / "calc.py").write_text(MODULE)
        (self.testbed / "tests/test_calc.py").write_text(TESTS)
        (self.testbed / "conftest.py").write_text("")
        (self.testbed / ".gitignore").write_text("__pycache__/\n*.local\n")
        git(self.testbed, "init", "-q")
        git(self.testbed, "add", ".")
        git(self.testbed, "commit", "-qm", "base")
        self.base = git(self.testbed, "rev-parse", "HEAD")
        self._opened: list[tuple[Any, Sandbox]] = []

    def box(self) -> Sandbox:
        """A fresh machine."""
        backend = open_backend(SandboxSpec(local=LocalSpec(images=str(self.images))))
        request = SandboxRequest(name="sb-test", image=IMAGE, deadline_s=900, network=False)
        box = backend.create(request)
        self._opened.append((backend, box))
        return box

    def row(self, **changes: Any) -> dict[str, Any]:
        """The instance's row."""
        row: dict[str, Any] = {
            "instance_id": "acme__calc-1",
            "repo": "acme/calc",
            "version": "1.0",
            "image": IMAGE,
            "FAIL_TO_PASS": ["tests/test_calc.py::test_adds"],
            "PASS_TO_PASS": ["tests/test_calc.py::test_subtracts"],
            "log_parser": "parse_log_pytest",
            "eval_type": "pass_and_fail",
            "eval_script": eval_script(self.base),
        }
        return row | changes

    def close(self) -> None:
        """Destroy every machine."""
        for backend, box in self._opened:
            backend.destroy(box)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The repository of a module's tests."""
    new_lab = Lab(tmp_path_factory.mktemp("images"))
    yield new_lab
    new_lab.close()


@pytest.fixture
def box(lab: Lab) -> Sandbox:
    """A fresh machine with the repository."""
    return lab.box()


@pytest.fixture(scope="session")
def real_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the real harness runs, unpacked."""
    archive = DATA / "swebench/harness_logs.tar.xz"
    if not archive.is_file():
        pytest.skip("needs the real logs in ../shared/data")
    folder = tmp_path_factory.mktemp("logs")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def real_rows() -> Callable[[str], dict[str, dict[str, Any]]]:
    """Rows of a data set by id: ``verified`` or ``lite`` as the logs' folders are called, or a file's name."""

    def read(name: str) -> dict[str, dict[str, Any]]:
        import pyarrow.parquet as pq

        file = DATA / f"swebench/{name}.parquet"
        if not file.is_file():
            pytest.skip("needs the real rows in ../shared/data")
        return {row["instance_id"]: row for row in pq.read_table(file).to_pylist()}

    return read
