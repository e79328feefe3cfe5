"""Findings by a file's name alone: what runners and Python load by themselves, and what git keeps for itself."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator

from steps.grading.patches.code import Found
from steps.grading.patches.diff import FileChange
from steps.grading.patches.suite import Suite, clean_path

# Files that Python, pytest or another runner loads by itself, before or around the tests.
_START_UP = re.compile(
    r"conftest\.py|(?:site|user)customize\.py|.*\.pth|\.?pytest\.(?:ini|toml)|tox\.toml|nose2?\.cfg|\.noserc"
    r"|\.mocharc.*|mocha\.opts|\.taprc|jasmine\.json|(?:jest|karma|vitest|ava|playwright|cypress|wallaby)(?:[.-]\w+)*"
    r"[.-](?:config|conf|setup|preset|workspace)(?:[.-]\w+)*\.(?:[cm]?[jt]sx?|json)"
    r"|setupTests\.[jt]sx?|phpunit\.xml.*|Pest\.php|(?:spec|rails|test)_helper\.rb|\.rspec(?:-local)?"
    r"|nextest\.toml|go\.work|testng\.xml|junit-platform\.properties"
)
_CARGO = re.compile(r"(?:.*/)?\.cargo/config(?:\.toml)?")
# Loaded by an interpreter, and nothing that a reviewer could read.
_BINARY = re.compile(
    r".*\.(?:py[cod]|so(?:\.\d+)*|dylib|dll|egg|whl|pyz|zip|jar|class|node|wasm|rlib|phar)|__pycache__/.*|.*/__pycache__/.*",
    re.IGNORECASE,
)
_SOURCE = re.compile(r".*\.(?:pyi?|pyx|[cm]?[jt]sx?|rb|php|go|rs|java|sh|c|h|cc|cpp)")
# pytest, and what it or its common plugins import from the path on which the repository stands.
_RUNNER = {"pytest", "_pytest", "pluggy", "iniconfig", "unittest", "tox", "nose", "nose2"}
_IMPORTED_BY_RUNNERS = {
    *("packaging", "exceptiongroup", "tomli", "tomllib", "pygments", "py", "colorama", "attr", "attrs", "toml", "six"),
    *("xdist", "execnet", "pytest_asyncio", "pytest_cov", "pytest_mock", "pytest_timeout", "coverage", "hypothesis"),
    *("importlib_metadata", "zipp", "typing_extensions", "atomicwrites", "more_itertools", "wcwidth", "argcomplete"),
}
# A folder or script called "test" is common, and nothing but CPython's own tests imports the library's.
_STANDARD = sys.stdlib_module_names - {"test"}
_LINK, _SUBMODULE = "120000", "160000"


def examine_paths(change: FileChange, suite: Suite) -> Iterator[Found]:
    """At most one finding of a code for each file."""
    codes = set()
    for name in sorted(change.names):
        for code, detail in _examine_name(clean_path(name), change, suite):
            if code not in codes:
                codes.add(code)
                yield code, detail


def _examine_name(path: str, change: FileChange, suite: Suite) -> Iterator[Found]:
    parts, display_path = path.split("/"), printable(path)
    if any(part.lower().rstrip(". ") in {".git", "git~1"} for part in parts):
        yield "patch_writes_git", f"{display_path} is git's own: hooks and settings there run commands"
    if path.startswith("/") or ".." in parts:
        yield "patch_leaves_repository", f"{display_path} lies outside the repository"
    if path in suite.restored:
        return
    if change.mode in {_LINK, _SUBMODULE}:
        yield "patch_adds_link", f"{display_path} stands for something else than its own text"
    if _BINARY.fullmatch(path):
        yield "patch_adds_binary", f"{display_path} can be loaded, and cannot be read"
    elif change.is_binary and _SOURCE.fullmatch(path):
        yield "patch_adds_binary", f"{display_path} is source text given as binary data, and cannot be read"
    name = posixpath.basename(path)
    if _START_UP.fullmatch(name) or _CARGO.fullmatch(path) or path in suite.run_files:
        yield "patch_edits_test_machinery", f"{display_path} is loaded with the tests, or runs them"
    elif name == ".gitattributes":
        yield "patch_edits_test_machinery", f"{display_path} says how git changes files that it puts back"
    elif (module := _shadowed(path, change, suite)) is not None:
        yield "patch_shadows_module", f"{display_path} is found where {module} is looked for"


def _shadowed(path: str, change: FileChange, suite: Suite) -> str | None:
    """The module that Python would find at ``path`` in place of another."""
    for file in suite.test_files:
        stem = posixpath.splitext(file)[0]
        if path.startswith(f"{stem}/") or (path != file and path.startswith(f"{stem}.") and path.endswith(".py")):
            return file
    if not path.endswith(".py"):
        return None
    for folder in suite.folders:
        inside = path.removeprefix(f"{folder}/") if folder else path
        if folder and inside == path:
            continue
        first, _, rest = inside.partition("/")
        module = first.removesuffix(".py") if not rest else first
        # Only a package with an __init__.py goes before what is installed.
        begins = rest in {"", "__init__.py"}
        if suite.repo.rpartition("/")[2].lower() == module.lstrip("_"):
            continue
        if module in _RUNNER:
            return module
        if begins and change.is_new and (module in _STANDARD or module in _IMPORTED_BY_RUNNERS):
            return module
    return None


def printable(text: str, width: int = 120) -> str:
    """``text`` as a report can show it: no control characters, no bytes that are not UTF-8, not too long."""
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    text = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text.strip()
    )
    return text if len(text) <= width else f"{text[: width - 3]}..."
