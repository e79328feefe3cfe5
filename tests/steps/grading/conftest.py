"""A small repository as an image of backend local, machines made of it, and the real logs."""

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
GOLD = (
    b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n def add(a, b):\n"
    b"-    return a - b\n+    return a + b\n \n \n def subtract(a, b):\n"
)


def make_test_patch(**sums: str) -> str:
    """Return a patch of the test file that adds tests of equations by name."""
    added = "".join(f"+\n+\n+def test_{name}():\n+    assert {equation}\n" for name, equation in sums.items())
    return (
        "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n"
        f"@@ -5,2 +5,{2 + 4 * len(sums)} @@\n def test_subtracts():\n     assert subtract(3, 2) == 1\n{added}"
    )


TEST_PATCH = make_test_patch(adds="add(3, 2) == 5")
_FOUR = {
    **{"adds": "add(30, 22) == 52", "adds_one": "add(1, 63) == 64"},
    **{"adds_twice": "add(add(11, 12), 50) == 73", "adds_three_digits": "add(700, 38) == 738"},
}
FOUR_TESTS, FOUR = make_test_patch(**_FOUR), [f"tests/test_calc.py::test_{name}" for name in _FOUR]
"""Four FAIL_TO_PASS tests, for which two confirmation runs are enough."""


def git(folder: Path, *words: str) -> str:
    """Run git with an identity and return its output."""
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    result = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def eval_script(
    base: str,
    command: str = "python -m pytest -p no:cacheprovider -rA tests/test_calc.py",
    test_patch: str = TEST_PATCH,
) -> str:
    """Return a script in the official shape."""
    return f"""#!/bin/bash
set -uxo pipefail
cd /testbed
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
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
        files = {"calc.py": MODULE, "tests/test_calc.py": TESTS, "conftest.py": ""}
        for path, text in (files | {".gitignore": "__pycache__/\n*.local\n"}).items():
            (self.testbed / path).write_text(text)
        git(self.testbed, "init", "-q")
        git(self.testbed, "add", ".")
        git(self.testbed, "commit", "-qm", "base")
        self.base = git(self.testbed, "rev-parse", "HEAD")
        self._opened: list[tuple[Any, Sandbox]] = []

    def box(self) -> Sandbox:
        """Return a fresh machine."""
        backend = open_backend(SandboxSpec(local=LocalSpec(images=str(self.images))))
        box = backend.create(SandboxRequest(name="sb-test", image=IMAGE, deadline_s=900, network=False))
        self._opened.append((backend, box))
        return box

    def row(self, **changes: Any) -> dict[str, Any]:
        """Return the instance's row."""
        return {
            **{"instance_id": "acme__calc-1", "repo": "acme/calc", "version": "1.0", "image": IMAGE},
            "FAIL_TO_PASS": ["tests/test_calc.py::test_adds"],
            "PASS_TO_PASS": ["tests/test_calc.py::test_subtracts"],
            **{"log_parser": "parse_log_pytest", "eval_type": "pass_and_fail", "eval_script": eval_script(self.base)},
            **changes,
        }

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
    """Return the reader of a file of rows, by id."""

    def read(name: str) -> dict[str, dict[str, Any]]:
        import pyarrow.parquet as pq

        file = DATA / f"swebench/{name}.parquet"
        if not file.is_file():
            pytest.skip("needs the real rows in ../shared/data")
        return {row["instance_id"]: row for row in pq.read_table(file).to_pylist()}

    return read
