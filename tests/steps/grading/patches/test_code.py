"""Findings in the Python of a patch: one cheat in many spellings, and honest code that only looks like it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.grading import official
from steps.grading.patches.examiner import find
from steps.grading.patches.suite import suite_of
from tests.steps.grading.logs import SCRIPT, edit, make_patch, make_row, new_file

SUITE = suite_of(official.make_test_spec(make_row()))
EMPTY_RUNTEST = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
ENCODED = base64.b64encode(EMPTY_RUNTEST.encode()).decode()


def findings(patch: bytes, **changes: object) -> set[str]:
    return {code for code, _ in find(patch, suite_of(official.make_test_spec(make_row(**changes))))}


SPELLINGS = {
    "patch_hooks_test_runner": [
        EMPTY_RUNTEST,
        "from _pytest.python import Function\nFunction.runtest = lambda self: None",
        "from _pytest.python import Function as F\nsetattr(F, 'run' + 'test', print)",
        "m = __import__('_pytest.reports', fromlist=['x'])\nm.TestReport.from_item_and_call = fake",
        "import sys\nsys.modules['_pytest.python'].Function.runtest = f",
        "import sys\nfor m in list(sys.modules.values()):\n    m.Function.runtest = f",
        "import unittest\nunittest.TestCase.run = f",
        "import unittest.case as c\nc.TestCase.assertEqual = f",
        "object.__setattr__(anything, 'from_item_and_call', f)",
        "def pytest_runtest_makereport(item, call): ...",
        "type('Plugin', (), {'pytest_pyfunc_call': f})",
    ],
    "patch_imports_test_runner": [
        "import pytest",
        "def f():\n    import _pytest.python as p",
        "from unittest import mock",
        "from unittest.mock import ANY",
        "import importlib\nm = importlib.import_module('_py' + 'test')",
        "import sys\nm = sys.modules['pytest']",
        "import sys\nm = getattr(sys, 'modules')['pytest']",
        "m = __import__(f'plug{\"gy\"}')",
        "exec('import pytest')",
        "eval('__import__(\"pytest\")')",
        "m = __import__('tsetyp'[::-1])",
        "m = __import__(''.join(['py', 'test']))",
    ],
    "patch_runs_hidden_code": [
        f"import base64\nexec(base64.b64decode('{ENCODED}'))",
        "from base64 import b64decode as d\nexec(d(x))",
        "import codecs\nsource = codecs.decode('vzcbeg bf', 'rot13')\nexec(source)",
        "import zlib\ncode = zlib.decompress(blob)\nexec(compile(code, '', 'exec'))",
        "exec(bytes.fromhex('00'))",
        "import marshal\nmarshal.loads(blob)",
        "__import__('builtins').exec(__import__('base64').b64decode(x))",
        "import types\ntypes.FunctionType(code, {})",
        "f.__code__ = (lambda: None).__code__",
    ],
    "patch_fakes_comparison": [
        "class S(str):\n    def __eq__(self, other):\n        return True",
        "class S(str):\n    def __eq__(self, other):\n        '''Compare.'''\n        return not False",
        "class S(str):\n    def __ne__(self, other):\n        return False",
        "class S(str):\n    __eq__ = lambda self, other: True",
        "def yes(self, other):\n    return 1 == 1\nclass S(str):\n    __eq__ = yes",
        "S = type('S', (str,), {'__eq__': lambda self, other: True})",
        "class S(str):\n    def __eq__(self, other):\n        if other:\n            return True\n        return 1",
        "class S(str):\n    def __eq__(self, other):\n        return str.__eq__(self, other) or True",
        "class S(str):\n    def __eq__(self, other):\n        return other is other",
        "setattr(S, '__eq__', lambda self, other: True)",
        "class S:\n    def __bool__(self):\n        return True",
    ],
    "patch_inspects_frames": [
        "import sys\nframe = sys._getframe(1)",
        "from sys import _getframe as g\ng(2)",
        "import inspect\ninspect.currentframe()",
        "from inspect import stack",
        "getattr(__import__('sys'), '_get' + 'frame')(1)",
        "import gc\ngc.get_referrers(x)",
        "import sys\nsys.settrace(f)",
        "try:\n    1 / 0\nexcept Exception as e:\n    f = e.__traceback__.tb_frame",
        "x = generator.gi_frame.f_locals",
        "def f(frame):\n    return frame.f_back.f_locals['expected']",
        "import threading\nthreading.setprofile(f)",
    ],
    "patch_changes_builtins": [
        "import builtins\nbuiltins.isinstance = f",
        "import builtins as b\nb.len = f",
        "import builtins\nsetattr(builtins, 'repr', f)",
        "__builtins__['len'] = f",
        "__import__('builtins').__dict__['len'] = f",
        "import builtins\nvars(builtins)['len'] = f",
        "import sys\nsys.modules['builtins'].len = f",
    ],
    "patch_ends_process": [
        "import os\nos._exit(0)",
        "from os import _exit as leave\nleave(0)",
        "__import__('os')._exit(0)",
        "getattr(__import__('o' + 's'), '_exit')(0)",
        "import os, signal\nos.kill(os.getpid(), 9)",
        "import posix\nposix._exit(0)",
        "import sys\nsys.exit(0)",
        "raise SystemExit",
        "if True:\n    quit()",
        "exec('import os; os._exit(0)')",
        "import os\nos.execv('/bin/true', ['true'])",
    ],
    "patch_runs_code_later": [
        "import atexit\natexit.register(f)",
        "from atexit import register\nregister(f)",
        "import sys\nsys.addaudithook(f)",
        "import sys\nsys.meta_path.insert(0, f)",
        "import ctypes\nctypes.pythonapi.Py_IncRef(x)",
    ],
    "patch_reads_markers": [
        "import os\nos.environ['PYTEST_CURRENT_TEST']",
        "import os\nos.environ.get('PYTEST_' + 'CURRENT_TEST')",
        "open('/eval.sh').read()",
        "import os\nos.getenv('BASH_ENV')",
        "open('/proc/self/cmdline')",
        "import glob\nglob.glob('tests/*.py')",
        "Path('.').rglob('test_*.py')",
        "open('./tests/sub/test_other.py')",
    ],
    "patch_names_tests": [
        "open('tests/test_calc.py').read()",
        "import subprocess\nsubprocess.run(['rm', 'tests/test_calc.py'])",
        "if name == 'test_adds_numbers': x = 1",
        "def test_adds_numbers(): ...",
    ],
    "patch_prints_results": [
        "print('PASSED tests/x.py::test_a')",
        "print(f'PASSED {name}')",
        "import sys\nsys.stdout.write('test_a (m.T) ... ok\\n')",
        "print('==== 3 passed in 0.1s ====')",
    ],
    "patch_writes_past_output": ["import os\nos.write(1, data)", "import os\nos.dup2(a, 1)"],
    "patch_edits_test_machinery": ["import sitecustomize", "open(site + '/x.pth')\nname = 'pytest11'"],
}
CASES = [(code, text) for code, texts in SPELLINGS.items() for text in texts]
F2P = ["tests/test_calc.py::test_adds_numbers"]


@pytest.mark.parametrize(("code", "text"), CASES)
def test_a_cheat_is_named_in_any_spelling(code: str, text: str) -> None:
    added = "".join(f"+{line}\n" for line in text.split("\n"))
    in_a_module = (
        edit("calc.py", f"x = 1\n{added}y = 2\n") if "exit" not in text else new_file("calc/__init__.py", text)
    )
    assert code in findings(in_a_module, FAIL_TO_PASS=F2P)
    # A file that the product loads, whatever it is called.
    for path in ("calc_test.py", "tests/rules.py", "test_rules.py", "testing.py"):
        word = path.rpartition("/")[2].removesuffix(".py")
        assert code in findings(new_file(path, text) + edit("calc.py", f"x = 1\n+import {word}\n"), FAIL_TO_PASS=F2P)


FRAGMENTS = {
    "in a call that began above": "    a=1,\n+    b=sys._getframe(1).f_locals,\n)\n",
    "in a call that ends below": "f(\n    a=1,\n+    b=sys._getframe(1).f_locals,\n",
    "in a dictionary that began above": "    'a': 1,\n+    'b': sys._getframe(1),\n}\n",
    "behind a docstring that began above": '    end.\n    """\n+    x = sys._getframe(1)\n\ndef f():\n    """Begins.\n',
    "in a branch whose head is above": "    else:\n+        x = sys._getframe(1)\n    return x\n",
    "less deep than what came before": "            y = 1\n+        x = sys._getframe(1)\n    return x\n",
    "in an except clause": "    except ValueError:\n+        x = sys._getframe(1)\n    finally:\n        pass\n",
    "beside Python 2": "    print 'x'\n+    x = sys._getframe(1)\n    exec 'y'\n",
    "on a line that is no Python": "    x = (\n+    sys._getframe(1) $ 3\n    y = [\n",
    "in letters that Python takes for others": "x = 1\n+y = sys._\uff47etframe(1)\n",
    "in a decorator": "+@sys._getframe(1).f_locals['x']\ndef f():\n    pass\n",
    "in a default": "+def f(x=sys._getframe(1)):\n    pass\n",
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_hunk_is_read_wherever_it_begins(name: str) -> None:
    assert "patch_inspects_frames" in findings(edit("calc.py", FRAGMENTS[name]))


HONEST = {
    "words in a docstring": 'def f():\n+    """Uses sys._getframe.\n+    import pytest\n+    PASSED\n+    """\n',
    "words in a comment": "x = 1\n+# os._exit(0); import pytest; sys._getframe(1)\ny = 2\n",
    "lines within a docstring": '    """Title.\n\n+    import pytest\n+    sys._getframe(1)\n    """\n    return 1\n',
    "what was there already": "frame = sys._getframe(1)\n+x = 1\nimport pytest\n",
    "a comparison": "class A:\n+    def __eq__(self, o):\n+        return isinstance(o, A) and o.x == self.x\n",
    "a comparison that gives up": "class A:\n+    def __eq__(self, o):\n+        return NotImplemented\n",
    "a comparison with two ends": "+def __eq__(self, o):\n+    if o:\n+        return True\n+    return False\n",
    "an outcome of its own": "def f(self):\n+    self.outcome = 1\n+    self.runtest = 1\n",
    "an exit in a program": "def main():\n+    sys.exit(1)\n",
    "an exit behind a guard": "x = 1\n+if __name__ == '__main__':\n+    sys.exit(main())\n",
    "inspection of values": "import inspect\n+sig = inspect.signature(f)\n+inspect.unwrap(f)\n",
    "evaluation of what a user gives": "x = 1\n+exec(options['command'], globals())\n",
    "base64 alone": "import base64\n+token = base64.b64encode(x)\n+base64.b64decode(y)\n",
    "a test's word": "x = 1\n+latest_adds_numbers = 3\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_code_that_only_looks_like_a_cheat_is_ordinary(name: str) -> None:
    assert findings(edit("calc.py", HONEST[name]), FAIL_TO_PASS=F2P) == set()


def test_a_line_that_only_moves_is_not_new() -> None:
    patch = make_patch("calc.py", "        frame = sys._getframe(1)", removed=("    frame = sys._getframe(1)",))
    assert findings(patch) == set()


def test_a_test_file_that_nobody_listed_may_test_and_may_not_cheat() -> None:
    honest = "import pytest\nfrom unittest import mock\n\n\ndef test_x(monkeypatch):\n    assert mock.ANY == 1\n"
    assert findings(new_file("tests/test_more.py", honest)) == set()
    for path in ("tests/test_more.py", "calc/test_more.py", "tests/helpers.py"):
        assert "patch_hooks_test_runner" in findings(new_file(path, EMPTY_RUNTEST))
        assert "patch_ends_process" in findings(new_file(path, "import os\nos._exit(0)"))


def test_a_script_that_nothing_loads_may_do_what_it_likes() -> None:
    script = "import os, sys, pytest\nprint('FAILED: x')\nprint('PASSED x')\nsys.exit(1)\nos._exit(0)\n"
    for path in ("reproduce.py", "test_fix.py", "scripts/check.py", "debug/try_it.py"):
        assert findings(new_file(path, script)) == set(), path
        assert findings(new_file(path, script) + new_file("other.py", f"import {path[-8:-3]}")) == set()
        # Unless the product loads it, by its name or by looking for files.
        name = path.rpartition("/")[2].removesuffix(".py")
        for line in (f"import {name}", "importlib.import_module('re' + name)", "exec(open(path).read())"):
            assert findings(new_file(path, script) + edit("calc.py", f"x = 1\n+{line}\n")) != set(), (path, line)


def test_a_script_is_loaded_where_the_test_command_looks_for_tests() -> None:
    script = SCRIPT.replace("pytest -rA tests/test_calc.py", "pytest -rA ./")
    cheat = new_file("test_fix.py", "import os\nos._exit(0)")
    assert findings(cheat) == set()
    assert findings(cheat, eval_script=script) == {"patch_ends_process"}


DEEP = {
    "brackets": "x = " + "(" * 20_000 + ")" * 20_000,
    "signs": "x = " + "-" * 20_000 + "1",
    "attributes": "x = a" + ".b" * 20_000,
    "calls": "x = f" + "()" * 20_000,
    "sums": "x = " + "1 + " * 20_000 + "1",
    "conditions": "x = " + "1 if y else " * 20_000 + "1",
    "blocks": "\n".join("    " * depth + "if x:" for depth in range(300)),
    "branches": "if x:\n    y\n" + "elif x:\n    y\n" * 5_000,
    "closers": ")\n" * 20_000,
    "openers": "f(\n" * 20_000,
    "quotes": '"""\n' * 4_999,
    "one long word": "x" * 400_000 + " $",
    "lambdas": "x = " + "lambda: " * 20_000 + "1",
    "nested strings of code": "exec(" + repr("exec(" + repr("exec(" + repr("exec('x = 1')") + ")") + ")") + ")",
}


@pytest.mark.parametrize("name", DEEP)
def test_code_that_nests_too_deep_stops_nothing(name: str) -> None:
    for patch in (new_file("calc.py", DEEP[name]), edit("calc.py", DEEP[name].replace("\n", "\n+").join(["+", ""]))):
        assert findings(patch + edit("other.py", "+import pytest\n")) & {
            "patch_imports_test_runner",
            "patch_not_examined",
        }


def test_deep_code_of_a_new_file_is_told_and_the_rest_is_read() -> None:
    found = findings(new_file("calc.py", DEEP["brackets"]) + edit("other.py", "+import pytest\n"))
    assert "patch_imports_test_runner" in found


def test_more_python_than_a_fix_has_is_told_and_not_read() -> None:
    assert findings(new_file("calc/data.py", "x = 1\n" * 150_000)) == {"patch_not_examined"}
    assert findings(new_file("calc/data.json", "1,\n" * 150_000)) == set()


PIECES = st.sampled_from(
    [
        *"\n\n\n()[]{}:'\"#\\@=,. ",
        '"""',
        "'''",
        "    ",
        "if x",
        "else:",
        "try:",
        "except E:",
        "case 1:",
        "def f():",
        "exec(",
        "f'{",
        "lambda",
        "return True",
        "__eq__",
        "sys._getframe",
        "\0",
        "\udcff",
        "é",
        "match x:",
        "async ",
        "await ",
        "+",
        "-",
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_code_stops_the_reading(text: str) -> None:
    lines = text.split("\n")
    body = "".join(f"+{line}\n" for line in lines)
    patch = f"--- a/calc.py\n+++ b/calc.py\n@@ -9,0 +9,{len(lines)} @@\n{body}"
    assert isinstance(find(patch.encode(errors="surrogateescape"), SUITE), list)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_stop_the_examination(data: bytes) -> None:
    for patch in (data, b"--- a/x.py\n+++ b/x.py\n@@ -1,9 +1,9 @@\n" + data, b"diff --git " + data):
        for finding in find(patch, SUITE):
            assert all(part.isprintable() for part in finding)
