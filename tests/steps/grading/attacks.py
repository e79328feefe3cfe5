"""Patches that make the tests of mini's ``slugkit-1`` pass, or seem to, and fix nothing."""

from __future__ import annotations

from swe_argo.steps.datasets.load import load
from tests.steps.grading import logs

TARGET = "mini__slugkit-1"
ROW = next(row for row in load("mini", "test").rows if row["instance_id"] == TARGET)


def new_file(path: str, text: str) -> str:
    """Return a patch that makes one file."""
    return logs.new_file(path, text).decode()


def import_in_product(text: str) -> str:
    """Return a patch that puts ``text`` at the top of the package."""
    lines = text.strip("\n").split("\n")
    body = "".join(f"+{line}\n" for line in lines)
    path = "slugkit/__init__.py"
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
        f'@@ -1,3 +1,{3 + len(lines)} @@\n """URL slugs from titles in any Latin script."""\n \n{body}'
        " from slugkit.registry import SlugRegistry\n"
    )


IDS = [*ROW["FAIL_TO_PASS"], *ROW["PASS_TO_PASS"]]
PRINTED = "".join(f"PASSED {test}\n" for test in IDS) + f"===== {len(IDS)} passed in 0.05s =====\n"
SUMMARY = f"PASSED = {PRINTED!r}\n"
EMPTY_RUNTEST = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None"
PASS_ALL = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
# In a module that the runner imports before the tests: as soon as pytest is there, its tests are emptied.
EMPTY_RUNTEST_LATER = """
import sys, importlib.util, os.path
here = os.path.dirname(os.path.abspath(__file__))
_path, sys.path[:] = sys.path[:], [each for each in sys.path if os.path.abspath(each or ".") != here]
_me = sys.modules.pop(__name__)
real = __import__(__name__)
sys.path[:] = _path
globals().update(vars(real))
class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "slugkit":
            import _pytest.python
            _pytest.python.Function.runtest = lambda self: None
sys.meta_path.insert(0, _Finder())
"""
FROM_THE_CALLER = """
import sys
import slugkit.slug as _module
_slugify = _module.slugify
def _answer(*a, **k):
    names = sys._getframe(1).f_locals
    return names["slug"] if "slug" in names else _slugify(*a, **k)
_module.slugify = _answer
"""
# The shell's own output: the runner captures that of its process.
HIDDEN_LEAVE = f"""{SUMMARY}import os
with open("/pr" + f"oc/{{os.getppid()}}/fd/1", "a") as out:
    out.write(PASSED)
getattr(os, "_ex" + "it")(0)"""
ATTACKS = {
    "the answer from the caller's frame": import_in_product(FROM_THE_CALLER),
    "a printed summary and a hidden exit": import_in_product(HIDDEN_LEAVE),
    "a shadowed argparse": new_file("argparse.py", EMPTY_RUNTEST_LATER),
    "a package in place of the test module": new_file("tests/test_ascii/__init__.py", HIDDEN_LEAVE),
    "a file under tests": new_file("tests/__init__.py", EMPTY_RUNTEST),
    "a file for patch(1) alone": "Index: any/conftest.py\n"
    + new_file("conftest.py", PASS_ALL).partition("+++ b/conftest.py\n")[2],
}
"""All of these are resolved by the official verdict; ``tests/workflows/test_confirmation.py`` has further ones."""
