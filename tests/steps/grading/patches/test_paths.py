"""Findings by a file's name."""

from __future__ import annotations

from typing import Any

import pytest

from steps.grading import official
from steps.grading.patches.examiner import find
from steps.grading.patches.suite import suite_of
from tests.steps.grading.logs import make_patch, make_row

NEW = "new file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x = 1\n"


def findings(patch: str | bytes, **changes: Any) -> list[str]:
    data = patch if isinstance(patch, bytes) else patch.encode()
    return [code for code, _ in find(data, suite_of(official.make_test_spec(make_row(**changes))))]


def new_file(path: str) -> str:
    return f"diff --git a/{path} b/{path}\n" + NEW.format(path)


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/post-checkout", "sub/.git/config", ".GIT/config", ".git"])
@pytest.mark.parametrize("form", ["git", "traditional", "Index"])
def test_whatever_lies_under_git_is_named(path: str, form: str) -> None:
    forms = {
        "git": new_file(path),
        "traditional": f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
        "Index": f"Index: b/{path}\n@@ -0,0 +1 @@\n+x\n",
    }
    assert "patch_writes_git" in findings(forms[form])


@pytest.mark.parametrize("path", ["../x.py", "a/../../x.py", "/etc/profile"])
def test_a_file_outside_the_repository_is_named(path: str) -> None:
    assert "patch_leaves_repository" in findings(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n")


@pytest.mark.parametrize(
    "path",
    [
        *("calc/fast.so", "calc/__pycache__/calc.cpython-311.pyc", "calc.pyc", "calc.cpython-311-x86_64-linux-gnu.so"),
        *("lib/x.egg", "lib/x.zip", "x.pyd", "tests/test_calc.pyc", "x.jar"),
    ],
)
def test_what_can_be_loaded_and_not_read_is_named(path: str) -> None:
    data = f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0000000..1111111\nGIT binary patch\nliteral 1\n"
    assert "patch_adds_binary" in findings(f"{data}IcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n")
    assert "patch_adds_binary" in findings(f"{data.partition('GIT')[0]}Binary files /dev/null and b/{path} differ\n")


def test_source_given_as_binary_data_is_named_and_a_picture_is_not() -> None:
    text = "diff --git a/{0} b/{0}\nindex 1111111..2222222 100644\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n"
    assert findings(text.format("calc.py")) == ["patch_adds_binary"]
    assert findings(text.format("docs/logo.png")) == []


@pytest.mark.parametrize(
    "path",
    [
        *(
            "argparse.py",
            "argparse/__init__.py",
            "pytest.py",
            "unittest/__init__.py",
            "_pytest/x.py",
            "src/argparse.py",
            "tests/argparse.py",
            "lib/json/__init__.py",
        ),
        *("iniconfig.py", "pluggy/__init__.py", "_pytest/runner.py", "packaging/__init__.py", "tests/iniconfig.py"),
        *("pygments/__init__.py", "exceptiongroup.py", "tomli.py", "py.py", "attr/__init__.py"),
        *("tests/test_calc/__init__.py", "tests/test_calc/anything.py", "tests/test_calc.abi3.py"),
    ],
)
def test_a_module_that_would_be_found_in_place_of_another_is_named(path: str) -> None:
    assert findings(new_file(path)) == ["patch_shadows_module"]


@pytest.mark.parametrize(
    "path",
    [
        *("calc/argparse.py", "calc/types.py", "docs/json/x.txt", "test/new.py", "test.py", "calc/tests/__init__.py"),
        *("json/notes.py", "tests/test_calculus/__init__.py", "tests/fixtures/__init__.py"),
    ],
)
def test_a_module_that_nothing_else_is_called_by_is_ordinary(path: str) -> None:
    assert findings(new_file(path)) == []


def test_a_repository_may_change_what_it_ships() -> None:
    assert findings(make_patch("json/decoder.py", "x = 1")) == []
    assert findings(make_patch("code/__init__.py", "x = 1")) == []
    assert findings(new_file("packaging/__init__.py"), repo="pypa/packaging") == []
    assert findings(make_patch("src/_pytest/runner.py", "x = 1"), repo="pytest-dev/pytest") == []


@pytest.mark.parametrize(
    "path",
    [
        *("pytest.toml", ".pytest.toml", ".pytest.ini", "a/b/conftest.py", "vitest.config.mts", "jest.setup.js"),
        *("karma.conf.cjs", ".mocharc.yml", "phpunit.xml.dist", "rails_helper.rb", ".cargo/config.toml", "go.work"),
        *("tests/Pest.php", "jest-preset.js", "jest.config.base.ts", ".gitattributes", "sub/tox.toml"),
    ],
)
def test_what_a_runner_loads_by_itself_is_named(path: str) -> None:
    assert findings(new_file(path)) == ["patch_edits_test_machinery"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("pyproject.toml", '["tool"."pytest".ini_options]'),
        ("pyproject.toml", '[tool."pyt\\u0065st".ini_options]'),
        ("pyproject.toml", '"\\u0061ddopts" = "-p evil"'),
        ("pyproject.toml", "tool = {'pytest' = {ini_options = {\"add\\u006fpts\" = '-p evil'}}}"),
        ("pyproject.toml", 'tool."pytest"."ini_options".x = 1'),
        ("pyproject.toml", '[project.entry-points."pytest\\u00311"]'),
        ("package.json", '    "\\u0074est": "echo 5 passing",'),
        ("Cargo.toml", "harness = false"),
        ("pom.xml", "  <testFailureIgnore>true</testFailureIgnore>"),
        ("build.gradle", "test { ignoreFailures = true }"),
    ],
)
def test_a_line_about_the_tests_is_named_however_it_is_spelled(path: str, line: str) -> None:
    assert findings(make_patch(path, line)) == ["patch_edits_test_machinery"]


def test_a_line_that_nests_too_deep_is_no_error() -> None:
    assert findings(make_patch("pyproject.toml", "x = " + "[" * 100_000, "a." * 100_000 + "b = 1")) == []


@pytest.mark.parametrize("mode", ["120000", "160000"])
def test_a_link_is_named(mode: str) -> None:
    assert findings(new_file("calc/x").replace("100644", mode)) == ["patch_adds_link"]


@pytest.mark.parametrize("path", ["a/{0}", "z/{0}", "i/{0}", '"a/{0}"', "x//{0}"])
def test_a_name_is_known_by_any_prefix_and_in_quotes(path: str) -> None:
    shown = path.format("conftest.py")
    assert "patch_edits_test_machinery" in findings(f"--- {shown}\n+++ {shown}\n@@ -1 +1 @@\n-x\n+y\n")


def test_both_names_of_a_renamed_file_are_looked_at() -> None:
    patch = "diff --git a/{0} b/{1}\nsimilarity index 100%\nrename from {0}\nrename to {1}\n"
    assert findings(patch.format("conftest.py", "x.py")) == ["patch_edits_test_machinery"]
    assert findings(patch.format("x.py", "conftest.py")) == ["patch_edits_test_machinery"]


@pytest.mark.parametrize("form", ["1c1\n< x\n---\n> y\n", "***************\n*** 1 ****\n! x\n--- 1 ----\n! y\n"])
def test_a_diff_of_another_form_is_named(form: str) -> None:
    assert findings(f"Index: calc.py\n{form}") == ["patch_not_unified"]
    assert findings(f"Index: b/conftest.py\n{form}") == ["patch_not_unified", "patch_edits_test_machinery"]


def test_what_the_script_restores_may_be_changed() -> None:
    assert findings(make_patch("tests/test_calc.py", "x = 1")) == []
