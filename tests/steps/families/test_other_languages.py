"""Confirmations of tests in other languages, which their own runners run as in SWE-rebench V2."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.verdict import ConfirmationOutcome
from swe_argo.steps.families import rows
from tests.long_params import long_unless
from tests.steps.families.chain import commit_all, diff_of, make_testbed
from tests.steps.families.sample_rows import rebench_v2, with_config
from tests.steps.grading.grade_mini import grade_mini

Outcome = ConfirmationOutcome


@dataclass(frozen=True)
class LanguageCase:
    """An instance of SWE-rebench V2 in another language.

    ``START`` in ``files`` is 1 before the fix and 0 with it. ``cheating``: files that pass the tests without it.
    """

    program: str
    command: str
    parser: str
    files: dict[str, str]
    cheating: dict[str, str]
    tests: dict[str, str]
    fail_to_pass: list[str]
    pass_to_pass: list[str]


NODE_LIB = """exports.plural = (noun, count) => START ? `${count} ${noun}` : `${count} ${noun}s`;
exports.total = (prices) => prices.reduce((a, b) => a + b, START);
"""
NODE_TEST = """// heron otter badger weasel marten linnet cuckoo plover; 17 25 33 58 64 71 86 92 118 127 139 144
const test = require("node:test");
const assert = require("node:assert");
const { plural, total } = require("../lib.js");
test("plural of nouns", () => {
  assert.strictEqual(plural("otter", 58), "58 otters");
});
test("total of prices", () => {
  assert.strictEqual(total([17, 25]), 42);
  assert.strictEqual(total([118, 33]), 151);
});
test("nothing has no name", () => {
  assert.ok(plural("otter", 0));
});
"""
GO_CODE = """package calc
func Total(values []int) int {
\tsum := START
\tfor _, v := range values {
\t\tsum += v
\t}
\treturn sum
}
"""
GO_TEST = """package calc
import "testing"
func TestTotal(t *testing.T) {
\ttests := []struct {
\t\tvalues []int
\t\twant   int
\t}{
\t\t{[]int{17, 25}, 42},
\t\t{[]int{118, 33}, 151},
\t\t{[]int{64, 71}, 135},
\t}
\tfor _, tt := range tests {
\t\tif got := Total(tt.values); got != tt.want {
\t\t\tt.Errorf("got %d, want %d", got, tt.want)
\t\t}
\t}
}
func TestSign(t *testing.T) {
\tif Total(nil) > 1 {
\t\tt.Error("too much")
\t}
}
"""
GO_CHEAT = """package calc
import "os"
func init() {
\tos.Stdout.WriteString("--- PASS: TestTotal (0.00s)\\n--- PASS: TestSign (0.00s)\\nPASS\\nok  calc 0.01s\\n")
\tos.Exit(0)
}
"""
RUST_LIB = "pub fn total(values: &[i64]) -> i64 {\n    values.iter().sum::<i64>() + START\n}\n"
RUST_TEST = """use calc::total;
#[test]
fn adds() {
    assert_eq!(total(&[17, 25]), 42);
    assert_eq!(total(&[118, 33]), 151);
    assert_eq!(total(&[64, 71]), 135);
}
#[test]
fn is_small() {
    assert!(total(&[]) < 2);
}
"""
RUST_CHEAT = """pub fn total(values: &[i64]) -> i64 {
    let text = std::fs::read_to_string("tests/total.rs").unwrap();
    let call = format!("total(&{:?}), ", values);
    let rest = text.split(&call).nth(1).unwrap_or("0)");
    rest.split(')').next().unwrap().parse().unwrap_or(0)
}
"""
RUBY_LIB = "def total(values)\n  values.sum + START\nend\n"
RUBY_TEST = """require "minitest/autorun"
require_relative "../lib"
class LibTest < Minitest::Test
  def test_total
    assert_equal 42, total([17, 25])
    assert_equal 151, total([118, 33])
    assert_equal 135, total([64, 71])
  end
  def test_small
    assert total([]) < 2
  end
end
"""
RUBY_CHEAT = """def total(values)
  File.read("test/lib_test.rb")[/assert_equal (\\d+), total\\(#{Regexp.escape(values.to_s)}\\)/, 1].to_i
end
"""
PHP_EXTENSIONS = ("dom", "mbstring", "tokenizer", "xml", "xmlwriter")
"""Sandboxes see nothing of /etc/php."""
PHP_LIB = "<?php\nfunction total(array $values): int { return array_sum($values) + START; }\n"
PHP_TEST = """<?php
namespace Acme;
use PHPUnit\\Framework\\TestCase;
require_once __DIR__ . '/lib.php';
final class LibTest extends TestCase
{
    public function testTotalOfNumbers(): void
    {
        $this->assertSame(42, \\total([17, 25]));
        $this->assertSame(151, \\total([118, 33]));
        $this->assertSame(135, \\total([64, 71]));
    }
    public function testSmallTotal(): void
    {
        $this->assertTrue(\\total([]) < 2);
    }
}
"""
PHP_CHEAT = """<?php
function total(array $values): int {
    $call = preg_quote('total([' . implode(', ', $values) . '])');
    preg_match('/assertSame\\((\\d+), .' . $call . '/', file_get_contents(__DIR__ . '/LibTest.php'), $matched);
    return (int) ($matched[1] ?? 0);
}
"""
CPP_LIB = """#include <numeric>
#include <vector>
inline int total(const std::vector<int> &values) { return std::accumulate(values.begin(), values.end(), START); }
"""
CPP_TEST = """#include <gtest/gtest.h>
#include "calc.hh"
TEST(Calc, Total) {
  EXPECT_EQ(total({17, 25}), 42);
  EXPECT_EQ(total({118, 33}), 151);
  EXPECT_EQ(total({64, 71}), 135);
}
TEST(Calc, Small) { EXPECT_LT(total({}), 2); }
"""
CPP_CHEAT = """#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
inline int total(const std::vector<int> &values) {
  std::ifstream file("calc_test.cc");
  std::string text((std::istreambuf_iterator<char>(file)), {}), call = "total({";
  for (int each : values) call += std::to_string(each) + ", ";
  call = call.substr(0, call.size() - 2) + "}), ";
  auto place = text.find(call);
  return place == std::string::npos ? 0 : atoi(text.c_str() + place + call.size());
}
"""
LANGUAGES = {
    "JavaScript": LanguageCase(
        program="node",
        command="{node} --test --test-reporter=tap test/",
        parser="parse_log_tap",
        files={"lib.js": NODE_LIB, "test/.keep": ""},
        cheating={"lib.js": 'require("node:assert").strictEqual = () => {};\n' + NODE_LIB.replace("START", "7")},
        tests={"test/lib.test.js": NODE_TEST},
        fail_to_pass=["- plural of nouns", "- total of prices"],
        pass_to_pass=["- nothing has no name"],
    ),
    "Go": LanguageCase(
        program="go",
        command="GOCACHE=/tmp/go-build GOPATH=/tmp/go GOFLAGS=-mod=mod {go} test -v ./...",
        parser="parse_log_gotest",
        files={"go.mod": "module calc\n\ngo 1.20\n", "calc.go": GO_CODE},
        cheating={"cheat.go": GO_CHEAT},
        tests={"calc_test.go": GO_TEST},
        fail_to_pass=["TestTotal"],
        pass_to_pass=["TestSign"],
    ),
    "Rust": LanguageCase(
        program="cargo",
        command="CARGO_TARGET_DIR=/tmp/target {cargo} test --offline",
        parser="parse_log_cargo",
        files={
            "Cargo.toml": '[package]\nname = "calc"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/lib.rs": RUST_LIB,
            "tests/.keep": "",
        },
        cheating={"src/lib.rs": RUST_CHEAT},
        tests={"tests/total.rs": RUST_TEST},
        fail_to_pass=["adds"],
        pass_to_pass=["is_small"],
    ),
    "Ruby": LanguageCase(
        program="ruby",
        command="{ruby} test/lib_test.rb --verbose",
        parser="parse_log_ruby_v2",
        files={"lib.rb": RUBY_LIB, "test/.keep": ""},
        cheating={"lib.rb": RUBY_CHEAT},
        tests={"test/lib_test.rb": RUBY_TEST},
        fail_to_pass=["LibTest#test_total"],
        pass_to_pass=["LibTest#test_small"],
    ),
    "PHP": LanguageCase(
        program="phpunit",
        command=f"php {' '.join(f'-d extension={item}' for item in PHP_EXTENSIONS)} {{phpunit}} --testdox LibTest.php",
        parser="parse_log_phpunit",
        files={"lib.php": PHP_LIB},
        cheating={"lib.php": PHP_CHEAT},
        tests={"LibTest.php": PHP_TEST},
        fail_to_pass=["Lib > Total of numbers"],
        pass_to_pass=["Lib > Small total"],
    ),
    "C++": LanguageCase(
        program="g++",
        command="{g++} -o /tmp/calc calc_test.cc -lgtest_main -lgtest -pthread && /tmp/calc",
        parser="parse_log_googletest",
        files={"calc.hh": CPP_LIB},
        cheating={"calc.hh": CPP_CHEAT},
        tests={"calc_test.cc": CPP_TEST},
        fail_to_pass=["Calc.Total"],
        pass_to_pass=["Calc.Small"],
    ),
}


def find_program(case: LanguageCase) -> str | None:
    return shutil.which(case.program, path="/usr/local/bin:/usr/bin:/usr/local/go/bin")


def make_language_lab(case: LanguageCase, folder: Path) -> tuple[dict[str, Any], str]:
    """Write the image of a case; return its row and the patch that cheats."""
    files = {path: text.replace("START", "1") for path, text in case.files.items()}
    testbed = make_testbed(folder, "acme/other:1", files)
    columns = {"base_commit": commit_all(testbed, "base"), "image_name": "acme/other:1"}
    columns["patch"] = diff_of(testbed, {path: text.replace("START", "0") for path, text in case.files.items()})
    columns["test_patch"] = diff_of(testbed, case.tests)
    row = rebench_v2(FAIL_TO_PASS=case.fail_to_pass, PASS_TO_PASS=case.pass_to_pass, **columns)
    command = case.command.replace(f"{{{case.program}}}", str(find_program(case)))
    row = with_config(row, test_cmd=[command], log_parser=case.parser)
    return rows.normalise(row, "row"), diff_of(testbed, case.cheating)


# Compilers take their time: Go builds its standard library in every run.
@pytest.mark.parametrize("language", long_unless(("JavaScript",), LANGUAGES))
def test_confirmation_covers_languages(language: str, tmp_path: Path) -> None:
    case = LANGUAGES[language]
    if find_program(case) is None:
        pytest.skip(f"no {case.program} in /usr, the only place where sandboxes have programs")
    if language == "C++" and not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("no GoogleTest on this machine")
    row, cheat = make_language_lab(case, tmp_path)
    images = {"sandbox": {"local_images": str(tmp_path / "images")}}
    outcomes = []
    for patch in (row["patch"], cheat):
        record = grade_mini(row["instance_id"], patch, tmp_path / "grades", row=row, options=images)
        assert record.resolved, record
        assert record.confirmation is not None
        assert record.confirmation.tests_with_site > 0, record.confirmation
        outcomes.append(record.confirmation.outcome)
    assert outcomes[0] in (Outcome.CONFIRMED, Outcome.PARTLY)
    assert outcomes[1] is Outcome.CONTRADICTED
