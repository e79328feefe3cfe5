"""How an instance's tests are run, as its official script and its lists say: which files count, which come back."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any

_WORD = re.compile(r"[^\s'\"()|;&<>]+")
# Programs that read a file which their command does not name.
_PROGRAM_FILES = {"make": "Makefile", "ant": "build.xml", "ctest": "CMakeLists.txt"}
_TESTS = re.compile(r"(?:tests?|testing|spec)/")
_FUNCTION = re.compile(r"\btest_\w{6,}", re.ASCII)


@dataclass(frozen=True)
class Suite:
    """Paths are relative to the repository, without ``./``."""

    repo: str
    restored: frozenset[str] = frozenset()
    """Files that the script puts back or removes before the tests: what a patch does to them is undone."""
    run_files: frozenset[str] = frozenset()
    """Other files that the test command names."""
    test_files: frozenset[str] = frozenset()
    """Where the listed tests are, as far as ids and script say."""
    collected: frozenset[str] = frozenset()
    """Folders whose test files the command looks for itself; ``""`` is the whole repository."""
    fail_to_pass: frozenset[str] = frozenset()
    """Names of test functions that must begin to pass, where they are names that nothing else would bear."""

    @property
    def folders(self) -> frozenset[str]:
        """Where a Python module of the patch can stand before one that is installed: what lies on the tests' path."""
        folder_names = {"", "src", "lib"}
        for file in self.test_files:
            folder = posixpath.dirname(file)
            while folder:
                folder_names.add(folder)
                # Of a test folder inside a package the folders above are packages; others may be on the path as well.
                folder = posixpath.dirname(folder) if _TESTS.match(folder) else ""
        return frozenset(folder_names)


def suite_of(spec: Any) -> Suite:
    """Read swebench's TestSpec."""
    from steps.grading import official  # not needed by the process that reads patches

    words = official.harness_constants()
    restored: set[str] = set()
    command_paths: set[str] = set()
    programs: set[str] = set()
    in_tests = False
    for line in spec.eval_script_list:
        if words.START_TEST_OUTPUT in line:
            in_tests = True
        elif words.END_TEST_OUTPUT in line:
            break
        elif in_tests:
            for word in _WORD.findall(line):
                programs |= {_PROGRAM_FILES[word]} if word in _PROGRAM_FILES else set()
                command_paths |= {clean_path(word.split("::")[0])} if "/" in word or "." in word else set()
        elif line.startswith("git checkout "):
            restored |= {clean_path(word) for word in line.split()[3:]}
        elif line.startswith("rm -f "):
            restored |= {clean_path(word) for word in line.split()[2:]}
    ids = [*spec.FAIL_TO_PASS, *spec.PASS_TO_PASS]
    in_ids = {clean_path(test.split("::")[0]) for test in ids if "::" in test and not test.startswith("[")}
    names = {name for test in spec.FAIL_TO_PASS for name in _FUNCTION.findall(test.split("[")[0])}
    test_files = {path for path in restored | in_ids | command_paths if posixpath.splitext(path)[1]}
    folders = {"" if path == "." else path for path in command_paths if not posixpath.splitext(path)[1] or path == "."}
    return Suite(
        repo=spec.repo,
        restored=frozenset(restored),
        run_files=frozenset((command_paths | programs) - restored),
        test_files=frozenset(test_files),
        collected=frozenset(folders if command_paths else {""}),
        fail_to_pass=frozenset(names),
    )


def clean_path(path: str) -> str:
    """``path`` in its shortest form."""
    return posixpath.normpath(path) if path else path
