"""SWE-smith's command, parser and timeout per repository (swesmith 0.0.9, profiles/{python,golang}.py).

A profile belongs to a repository at a commit. Only profiles that differ from their language's are listed. Other
languages, and profiles with their own parser and command, are rejected by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from swe_argo.steps.families.columns import SourceRow, bad_column
from swe_argo.steps.families.listed_tests import STATUSES
from swe_argo.steps.families.swesmith.rows import bug_patch, instance_id, profile_key

Results = list[tuple[str, str]]
"""(test, status) pairs in the log's order; a test's last pair counts."""

_CONDA = "source /opt/miniconda3/bin/activate; conda activate testbed; "
_PYTEST = "pytest --disable-warnings --color=no --tb=no --verbose"
_ANY = "|".join(STATUSES)


@dataclass(frozen=True)
class SmithProfile:
    """A test command, and a parser of its output."""

    test_command: str
    parse: Callable[[str], Results]
    names_test_files: bool = False
    """Whether the command gets the files of the listed tests (``min_testing``) instead of running the whole suite."""
    timeout_s: int = 90


def _line_parser(pattern: str, name: int, status: int) -> Callable[[str], Results]:
    """Return a parser of lines; ``name`` and ``status`` are the pattern's groups with the test and its status."""
    line_pattern = re.compile(pattern)

    def parse(text: str) -> Results:
        matches = (line_pattern.match(line) for line in text.split("\n"))
        return [(match[name], match[status]) for match in matches if match]

    return parse


parse_pytest: Final = _line_parser(rf"(\S+)\s+({_ANY})", 1, 2)
"""Parser of ``pytest --verbose``: an id at the start of a line, then the status. Ids with blanks are lost."""

_GO = (
    (re.compile(r"--- PASS: (\S+)"), "PASSED"),
    (re.compile(r"--- FAIL: (\S+)"), "FAILED"),
    (re.compile(r"FAIL:?\s?(.+?)\s"), "FAILED"),
    (re.compile(r"--- SKIP: (\S+)"), "SKIPPED"),
)


def parse_go(text: str) -> Results:
    """Parse ``go test -v``: tests and failed packages by name, ignoring blanks around a line."""
    results = []
    for line in text.split("\n"):
        matches = ((pattern.match(line.strip()), status) for pattern, status in _GO)
        match, status = next(((match, status) for match, status in matches if match), (None, ""))
        if match:
            results.append((match[1], status))
    return results


_PYTHON = SmithProfile(_CONDA + _PYTEST, parse_pytest)
_BY_SUFFIX = {".py": _PYTHON, ".go": SmithProfile("go test -v ./...", parse_go)}
_OWN: Final = {
    "HIPS__autograd.ac044f0d": replace(_PYTHON, parse=_line_parser(rf"\[gw\d\]\s({_ANY})\s(\S+)", 2, 1)),
    "blevesearch__bleve.f2876b5e": replace(_BY_SUFFIX[".go"], timeout_s=120),
    "mido__mido.a0158ff9": replace(_PYTHON, test_command=f"{_CONDA}{_PYTEST} -rs -c /dev/null"),
    "nats-io__nats-server.2ee2e24c": replace(_BY_SUFFIX[".go"], timeout_s=120),
    "paramiko__paramiko.23f92003": SmithProfile(
        f"{_CONDA}pytest -rA --color=no --disable-warnings", _line_parser(rf"({_ANY})\s(\S+)", 2, 1)
    ),
    "pydantic__pydantic.acb0f10f": replace(_PYTHON, test_command=f"/root/.local/bin/uv run {_PYTEST}"),
    "tkrajina__gpxpy.09fc46b3": replace(
        _PYTHON, test_command=f"{_CONDA}pytest test.py --verbose --color=no --tb=no --disable-warnings"
    ),
} | dict.fromkeys(
    (
        "Project-MONAI__MONAI.a09c1f08",
        "conan-io__conan.86f29e13",
        "dask__dask.5f61e423",
        "getmoto__moto.694ce1f4",
        "iterative__dvc.1d6ea681",
        "modin-project__modin.8c7799fd",
        "pandas-dev__pandas.95280573",
        "scrapy__scrapy.35212ec5",
        "sqlfluff__sqlfluff.50a1c4b6",
        "sunpy__sunpy.f8edfd5c",
        "sympy__sympy.2ab64612",
        "tobymao__sqlglot.036601ba",
    ),
    replace(_PYTHON, names_test_files=True),
)
_BUNDLED_SPEC: Final = replace(_PYTHON, test_command=f"python -m {_PYTEST}")
_UNSUPPORTED: Final = ("python__mypy.e93f06ce", "tornadoweb__tornado.d5ac65c1", "un33k__python-slugify.872b3750")


def profile_of(row: SourceRow) -> SmithProfile:
    """Return the profile of a row's repository, by name, else by the suffixes of the files that the bug changes.

    Raises ConfigError for an unsupported repository.
    """
    key = profile_key(row)
    if key in _OWN:
        return _OWN[key]
    if key.startswith("mini__"):
        return _BUNDLED_SPEC
    if key in _UNSUPPORTED:
        raise bad_column(instance_id(row), "repo", f"{key} needs its own test command and parser: not supported")
    suffixes = {PurePosixPath(path).suffix for path in _changed_files(bug_patch(row))}
    of_language = [_BY_SUFFIX[suffix] for suffix in sorted(suffixes) if suffix in _BY_SUFFIX]
    if len(of_language) != 1:
        changed = ", ".join(sorted(suffixes)) or "no files"
        raise bad_column(instance_id(row), "repo", f"is neither Python nor Go (its bug changes {changed})")
    return of_language[0]


def _changed_files(patch: str) -> list[str]:
    return re.findall(r"^(?:---|\+\+\+) [ab]/([^\t\n]+)", patch, re.MULTILINE)
