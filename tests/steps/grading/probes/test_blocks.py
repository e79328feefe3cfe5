"""Probes for other runners: run by Go, Cargo and Node where they are, and read by the official parsers everywhere."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from steps.grading import swebench_harness
from steps.grading.official import StatusMap, call_quietly
from steps.grading.probes.planting import CannotPlantError, Planted, Setting
from steps.grading.probes.runners import runner_of

GO = """package calc

import "testing"

// TestAdd adds.
func TestAdd(t *testing.T) {
	if 1+1 != 2 {
		t.Fatal("no")
	}
}

func TestSkipped(t *testing.T) {
	t.Skip()
}
"""
RUST = """pub fn add(a: i32, b: i32) -> i32 {
    a + b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_two_numbers() {
        assert_eq!(add(1, 2), 3);
    }

    fn helper() {}
}
"""
NODE = """const { it, describe } = require('node:test');
const assert = require('node:assert');

describe('add', () => {
  it('should add numbers', () => {
    assert.strictEqual(1 + 1, 2);
  });
});
"""


def parse(parser: str, log: str) -> StatusMap:
    """What the official parser of that name reads."""
    return call_quietly(swebench_harness.import_harness("log_parsers").PARSER_REGISTRY[parser], log, None)


def plant(parser: str, path: str, text: str, passed: list[str], *, command: str = "", seed: int = 0) -> Planted:
    """The file with probes."""
    runner = runner_of(swebench_harness.import_harness("log_parsers").PARSER_REGISTRY[parser], None)
    assert not isinstance(runner, str)
    assert runner.reads(path)
    return runner.plant(path, text, Setting(dict.fromkeys(passed, "PASSED"), command, random.Random(seed)))


def run(folder: Path, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A runner to its end; the test is skipped where it is not installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **more)


def came_out(planted: Planted, statuses: StatusMap) -> tuple[set[str], set[str]]:
    """What the two tests were reported as."""
    return (
        {status for test, status in statuses.items() if planted.failing in test},
        {status for test, status in statuses.items() if planted.passing in test},
    )


@pytest.mark.long  # where nothing was built before, it begins with Go's own library
@pytest.mark.parametrize("seed", range(2))
def test_go_reports_them(tmp_path: Path, seed: int) -> None:
    planted = plant(
        "parse_log_gotest", "calc_test.go", GO, ["TestAdd"], command="go test -v . -run '^TestAdd'", seed=seed
    )
    (tmp_path / "calc_test.go").write_text(planted.text)
    (tmp_path / "go.mod").write_text("module calc\n\ngo 1.20\n")
    environment = os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    done = run(tmp_path, "go", "test", "-v", ".", "-run", "^TestAdd", env=environment)
    assert came_out(planted, parse("parse_log_gotest", done.stdout)) == ({"FAILED"}, {"PASSED"}), done
    assert parse("parse_log_gotest", done.stdout)["TestAdd"] == "PASSED"
    assert done.returncode != 0


def test_cargo_reports_them(tmp_path: Path) -> None:
    planted = plant("parse_log_cargo", "src/lib.rs", RUST, ["tests::adds_two_numbers"], command="cargo test adds")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").write_text(planted.text)
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n')
    done = run(tmp_path, "cargo", "test", "--offline", "--lib", "adds")
    if "no default toolchain" in done.stderr or "could not download" in done.stderr:
        pytest.skip("needs a Rust toolchain")
    assert came_out(planted, parse("parse_log_cargo", done.stdout)) == ({"FAILED"}, {"PASSED"}), done
    assert done.returncode != 0


def test_node_reports_them_as_tap(tmp_path: Path) -> None:
    planted = plant("parse_log_tap", "add.test.js", NODE, ["should add numbers"])
    (tmp_path / "add.test.js").write_text(planted.text)
    done = run(tmp_path, "node", "--test", "--test-reporter=tap")
    if "bad option" in done.stderr:
        pytest.skip("needs Node 20")
    assert came_out(planted, parse("parse_log_tap", done.stdout)) == ({"FAILED"}, {"PASSED"}), done.stdout
    assert done.returncode != 0


CASES = tomllib.loads((Path(__file__).parent / "samples.toml").read_text("utf-8"))


@pytest.mark.parametrize("parser", CASES)
def test_the_official_parser_names_them_as_they_are_looked_for(parser: str) -> None:
    case = CASES[parser]
    text, log = case["text"], case["log"]
    # minitest's parser is reached by way of jekyll's, which asks for the instance.
    by = "parse_log_jekyll" if parser == "parse_log_minitest" else parser
    planted = plant(by, case["path"], text, case["passed"])
    failing, passing = came_out(planted, parse(parser, log.format(failing=planted.failing, passing=planted.passing)))
    assert failing == {"FAILED"}
    assert passing in ({"PASSED"}, set())
    lines = planted.text.split("\n")
    rest = iter(lines)
    assert all(line in rest for line in text.split("\n")), "the file's own lines stay, in order"
    assert len(lines) == len(text.split("\n")) + len(planted.added)


@pytest.mark.parametrize(
    ("parser", "path", "command"),
    [
        ("parse_log_cargo", "a.rs", "cargo test -- adds_two_numbers --exact"),
        ("parse_log_gotest", "a_test.go", "go test -run '^TestAdd$'"),
        ("parse_log_gradle_custom", "A.java", "./gradlew test --tests A.testX -Dq"),
        ("parse_log_rspec_transformed_json", "a_spec.rb", "jq '.examples[] | .id'"),
    ],
)
def test_a_file_whose_new_tests_would_not_run_says_so(parser: str, path: str, command: str) -> None:
    with pytest.raises(CannotPlantError, match="only the tests that it names"):
        plant(parser, path, "", [], command=command)


def test_a_file_of_which_nothing_passed_takes_none() -> None:
    with pytest.raises(CannotPlantError, match="reported as passed"):
        plant("parse_log_gotest", "a_test.go", GO, [])


def test_a_test_that_hangs_on_the_line_above_gets_no_neighbour() -> None:
    text = "class A < Test::Unit::TestCase\n  data('x' => 1)\n  test 'adds up' do\n    assert true\n  end\nend\n"
    with pytest.raises(CannotPlantError, match="passed"):
        plant("parse_log_ruby_unit", "test/test_a.rb", text, ["adds up"])
