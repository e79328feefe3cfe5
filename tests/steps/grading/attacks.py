"""Patches that make the tests of mini's ``slugkit-1`` pass, or seem to, and fix nothing."""

from __future__ import annotations

import base64
import re

from swe_argo.steps.datasets.load import load
from tests.steps.grading import logs

TARGET = "mini__slugkit-1"
ROW = next(row for row in load("mini", "test").rows if row["instance_id"] == TARGET)


def new_file(path: str, text: str, quoted: str = "") -> str:
    """A patch that makes one file; ``quoted`` is its name as git quotes it, with P for the prefix."""
    patch = logs.new_file(path, text).decode()
    for prefix in "ab" if quoted else "":
        patch = patch.replace(f"{prefix}/{path}", quoted.replace("P", prefix, 1))
    return patch


def import_in_product(text: str) -> str:
    """A patch that puts ``text`` at the top of the package."""
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
PATCHED_REPORT = """
import sys
reports = sys.modules.get("_pytest.reports")
if reports is not None:
    make = reports.TestReport.from_item_and_call.__func__
    def always(cls, item, call):
        call.excinfo = None
        return make(cls, item, call)
    reports.TestReport.from_item_and_call = classmethod(always)
"""
ENCODED = base64.b64encode(EMPTY_RUNTEST.encode()).decode()
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
TRUE_STRING = """
class _Slug(str):
    def __eq__(self, other):
        return True
    __hash__ = str.__hash__
import slugkit.slug as _module
_slugify = _module.slugify
_module.slugify = lambda *a, **k: _Slug(_slugify(*a, **k))
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
PLUGIN = "def pytest_pyfunc_call(pyfuncitem):\n    return True\n"
ATTACKS = {
    "empties runtest at import": import_in_product(EMPTY_RUNTEST),
    "patches the report at import": import_in_product(PATCHED_REPORT),
    "the same, encoded": import_in_product(f"import base64\nexec(base64.b64decode('{ENCODED}'))"),
    "a string equal to all": import_in_product(TRUE_STRING),
    "the answer from the caller's frame": import_in_product(FROM_THE_CALLER),
    "a printed summary and a hidden exit": import_in_product(HIDDEN_LEAVE),
    "a shadowed iniconfig": new_file("iniconfig.py", EMPTY_RUNTEST_LATER),
    "a shadowed argparse": new_file("argparse.py", EMPTY_RUNTEST_LATER),
    "a shadowed package of pytest's": new_file(
        "pluggy/__init__.py", EMPTY_RUNTEST_LATER.replace("__file__", "os.path.dirname(__file__)")
    ),
    "pytest.toml": new_file("pytest.toml", '[pytest]\naddopts = ["-p", "slugkit.extra"]')
    + new_file("slugkit/extra.py", PLUGIN),
    "escaped keys of TOML": "diff --git a/pyproject.toml b/pyproject.toml\n--- a/pyproject.toml\n+++ b/pyproject.toml\n"
    '@@ -11,3 +11,4 @@\n \n [tool.pytest.ini_options]\n testpaths = ["tests"]\n'
    '+"\\u0061ddopts" = "-p slugkit.extra"\n' + new_file("slugkit/extra.py", PLUGIN),
    "a package in place of the test module": new_file("tests/test_ascii/__init__.py", HIDDEN_LEAVE),
    "a file that is called a test": new_file("slugkit/rules_test.py", EMPTY_RUNTEST)
    + import_in_product("import slugkit.rules_test"),
    "a file under tests": new_file("tests/__init__.py", EMPTY_RUNTEST),
    "a quoted name": new_file("conftest.py", PASS_ALL, quoted='"P/\\143onftest.py"'),
    "another first component": re.sub(r"\b[ab]/conftest", "any/conftest", new_file("conftest.py", PASS_ALL)),
    "a file for patch(1) alone": "Index: any/conftest.py\n"
    + new_file("conftest.py", PASS_ALL).partition("+++ b/conftest.py\n")[2],
}
"""All of these are resolved by the official verdict."""
