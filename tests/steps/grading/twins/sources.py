"""Real test files: of the standard library and of packages that the development environment has."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(sysconfig.get_path("stdlib")) / "test"
PACKAGES = Path(sysconfig.get_path("purelib"))
REPOSITORIES = {
    "cpython": [LIBRARY / f"test_{name}.py" for name in ("textwrap", "urlparse", "string", "fractions", "statistics")],
    "networkx": [PACKAGES / f"networkx/algorithms/tests/test_{name}.py" for name in ("cluster", "cycles", "dag")],
    "pandas": [
        PACKAGES / "pandas/tests" / path
        for path in ("io/formats/test_format.py", "strings/test_strings.py", "scalar/timedelta/test_timedelta.py")
    ],
    "mypy": [PACKAGES / "mypyc/test" / path for path in ("test_emit.py", "test_namegen.py")],
    "jsonschema": [PACKAGES / "jsonschema/tests" / path for path in ("test_cli.py", "test_validators.py")],
}


def list_tests(source: bytes) -> list[str]:
    """Return the qualified names of the tests of a file."""
    return list(_walk(ast.parse(source).body, ""))


def _walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _walk(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test"):
            yield prefix + statement.name
