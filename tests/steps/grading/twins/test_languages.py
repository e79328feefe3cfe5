from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import pytest

from swe_argo.steps.grading import swebench_harness
from swe_argo.steps.grading.twins import trees
from swe_argo.steps.grading.twins.ids import locate_tests, rename_test
from swe_argo.steps.grading.twins.languages import find_language, from_python, to_python
from swe_argo.steps.grading.twins.sites import Site, SiteChange, apply_changes, find_sites, is_supported
from swe_argo.steps.grading.twins.sites import TestPlace as Place
from swe_argo.steps.grading.twins.values import draw_value
from swe_argo.steps.grading.twins.vocabulary import Vocabulary

# Each file is shaped after those of public repositories; the ids are as the log parser of such a repository shows them.


@dataclass(frozen=True)
class Case:
    """A test file, its tests' ids with the sites they must have, and ids that must not be located."""

    path: str
    source: str
    sites: Mapping[str, list[str]]
    unknown: tuple[str, ...] = ()


CASES = {
    "jest": Case(
        "packages/slugs/__tests__/slug.test.js",
        """
        import { slug, parse } from '../src';
        const limits = [[1, 'one'], [2, 'two']];

        describe('slug', () => {
          describe('words', () => {
            it('joins words', () => {
              const expected = 'hello-world';
              expect(slug('Hello World')).toBe(expected);
              expect(slug('a', { length: 12 }).length).toEqual(27);
              expect(slug('q')).not.toBe('never');
              expect(slug('sum')).toContain('part');
              expect(other('x')).toBe(helper('weak'));
            });
            it('keeps inputs', () => {
              const same = 'shared';
              expect(slug(same)).toBe(same);
              expect(slug('twice')).toBe('twice');
            });
          });
          it('parses', async () => {
            expect(await parse('x=1')).toStrictEqual({ x: 41, names: ['alpha', 'beta'], on: true, none: null });
            expect(parse('t')).toEqual(`template text`);
            expect(parse('u')).toEqual(`with ${limits}`);
          });
          it.each([[3, 1, 104], [4, 2, 106]])('adds %i and %i', (a, b, expected) => {
            expect(a + b).toBe(expected);
          });
          it.each([['x', 61], ['y', 71]])('shows %s as %i', (name, code) => {
            expect(read(name)).toBe(code);
          });
          for (const [count, word] of limits) {
            it(`counts ${count}`, () => { expect(read(count)).toBe(word); });
          }
        });
        """,
        {
            "joins words": ["'hello-world'", "27"],
            "slug words joins words": ["'hello-world'", "27"],
            "packages/slugs/__tests__/slug.test.js > slug > words > joins words": ["'hello-world'", "27"],
            "keeps inputs": [],
            "slug > parses": ["41", "'alpha'", "'beta'", "true", "`template text`"],
            "adds 3 and 1": ["104"],
            "adds 4 and 2": ["106"],
            "shows x as 61": [],
        },
        ("counts 1", "slug > nothing", "adds 3 and 2"),
    ),
    "mocha": Case(
        "test/unit/http.ts",
        """
        import assert from 'assert';
        describe('supports http', function () {
          it('should time out', function (done: () => void): void {
            request('/slow').catch((error: Error) => {
              assert.strictEqual(error.code, 'ECONNABORTED');
              assert.equal(error.retries, 3, 'retried');
              assert.equal(error.status, '404');
              assert.ok(error.timeout === 250 && error.kind === 'slow');
              assert.notStrictEqual(error.name, 'other');
              done();
            });
          });
          it('should chain', () => { expect(read<string>('a')).to.be.deep.equal('b c' as string); });
        });
        """,
        {
            "supports http should time out": ["'ECONNABORTED'", "3", "250", "'slow'"],
            "supports http should chain": ["'b c'"],
        },
    ),
    "qunit": Case(
        "test/unit/src/core/Object3D.tests.js",
        """
        export default QUnit.module('Core', () => {
          QUnit.module('Object3D', () => {
            QUnit.test('toJSON', (assert) => {
              assert.deepEqual(read().tags, ['first', 'second'], 'tags');
              assert.strictEqual(read().size, 48);
            });
          });
        });
        """,
        {"Core > Object3D > toJSON": ["'first'", "'second'", "48"]},
    ),
    "go test": Case(
        "lib/text/text_test.go",
        """
        package text

        import "testing"

        func TestCount(t *testing.T) {
            tests := []struct {
                name, in string
                want     int
                wantErr  bool
            }{
                {name: "empty input", in: "", want: 0},
                {name: "two words", in: "a b", want: 22},
                {"positional", "a", 31, false},
            }
            for _, tt := range tests {
                tt := tt
                t.Run(tt.name, func(t *testing.T) {
                    got, err := Count(tt.in)
                    if (err != nil) != tt.wantErr {
                        t.Fatal(err)
                    }
                    if got != tt.want {
                        t.Errorf("Count(%q) = %d, want %d", tt.in, got, tt.want)
                    }
                })
            }
        }

        func TestJoin(t *testing.T) {
            want := "left-right"
            if got := Join("left", "right"); got != want {
                t.Fatalf("got %s, want %s", got, want)
            }
            if n := Size("left"); n != 7 {
                return
            }
            if Mode() != "quick mode" {
                if err := Start(); err != nil {
                    t.Fatal(err)
                }
            }
            t.Run("raw text", func(t *testing.T) {
                assert.Equal(t, `raw "text"`, Raw())
                require.Equal(t, []string{"alpha", "beta"}, List())
                assert.Contains(t, Raw(), "part")
            })
        }
        """,
        {
            "TestCount/empty_input": ["0"],
            "TestCount/two_words": ["22"],
            "TestCount/positional": ["31", "false"],
            "TestCount": ["0", "22", "31", "false"],
            "TestJoin": ['"left-right"', '`raw "text"`', '"alpha"', '"beta"'],
            "TestJoin/raw_text": ['`raw "text"`', '"alpha"', '"beta"'],
        },
        ("TestCount/three_words", "TestOther"),
    ),
    "cargo test": Case(
        "app/src/routing/tests/mod.rs",
        """
        mod words {
            #[test]
            fn counts_words() {
                let expected = 21u32;
                assert_eq!(count("a b"), expected, "of {}", "text");
                assert_eq!(name(3)?, Some("long name".to_string()));
                assert!(flag("x") == true);
                assert_ne!(count("b"), 5);
                assert_eq!(limits(), vec![1_000, -17]);
                for (input, output) in [("one", 111), ("two", 222)] {
                    assert_eq!(count(input), output);
                }
            }
            #[tokio::test(flavor = "current_thread")]
            async fn answers() { assert_eq!(read().await, r#"say "it""#); }
            fn helper() { assert_eq!(count("z"), 99); }
        }
        """,
        {
            "routing::tests::words::counts_words": [
                "21u32",
                '"long name"',
                "true",
                "1_000",
                "-17",
                "111",
                "222",
            ],
            "words::answers": ['r#"say "it""#'],
        },
        ("words::helper",),
    ),
    "junit": Case(
        "core/src/test/java/org/acme/MoneyTest.java",
        """
        package org.acme;
        public class MoneyTest {
          @Test public void testRound() {
            assertEquals("three dollars" + " only", Money.of(3).toString());
            assertEquals("message", 5, Money.of(5).cents());
            assertEquals(2.5, Money.half(), 0.01);
            assertThat(Money.of(4).cents()).isEqualTo(-400L);
            assertThat(Money.of(4).name()).startsWith("four");
            assertTrue(Money.of(6).name().equals("six dollars"));
          }
          static Stream<Arguments> amounts() { return Stream.of(Arguments.of(1, "one"), Arguments.of(2, "two")); }
          @ParameterizedTest @MethodSource("amounts") void names(int amount, String name) {
            assertEquals(name, Money.of(amount).toString());
          }
          @ParameterizedTest @CsvSource({"7, fox, 61", "8, ox, -62"}) void sizes(int amount, String name, int size) {
            assertEquals(size, Money.of(amount, name).size());
          }
          @ParameterizedTest @CsvSource(value = {"7|61"}, delimiter = '|') void parts(int amount, int size) {
            assertEquals(size, Money.of(amount).parts());
          }
          @Nested class Inner { @Test void zero() { Assertions.assertSame('z', Money.zero()); } }
          void helper() { assertEquals(77, Money.of(77)); }
        }
        """,
        {
            "org.acme.MoneyTest#testRound": ['"three dollars"', '" only"', "-400L", '"six dollars"'],
            "org.acme.MoneyTest > names": ['"one"', '"two"'],
            "org.acme.MoneyTest#sizes": ["61", "-62"],
            "org.acme.MoneyTest#parts": [],
            "org.acme.MoneyTest$Inner#zero": ["'z'"],
            "MoneyTest": ['"three dollars"', '" only"', "-400L", '"six dollars"', "'z'"],
        },
        ("org.acme.MoneyTest#helper", "org.acme.OtherTest#testRound"),
    ),
    "c": Case(
        "tests/test_list.c",
        """
        #include <assert.h>
        static void test_size(void **state) {
            int expected = 42;
            assert(list_size(3) == expected);
            assert_string_equal(list_name(1), "first name");
            assert(strcmp(list_name(2), "second name") == 0);
            assert(strcmp(list_name(3), "third") != 0);
            assert(list_name(4) == "pointer");
            TEST_ASSERT_EQUAL_FLOAT(1.25, list_ratio());
            TEST_ASSERT_EQUAL_STRING_LEN("begin", list_name(5), 2);
            TEST_ASSERT_EQUAL_INT(0x1F, list_flags());
        }
        """,
        {"test_size": ["42", '"first name"', '"second name"', "0x1F"]},
    ),
    "gtest": Case(
        "test/format-test.cc",
        """
        TEST(format_test, format_nan) {
          double nan = value();
          EXPECT_EQ("  +nan", fmt::format("{:+06}", nan));
          EXPECT_EQ(fmt::format("{}", 1), std::string("one thing"));
          ASSERT_TRUE(is_nan(nan) == true);
          EXPECT_NE("other", fmt::format("{}", nan));
          EXPECT_NEAR(1.5, nan, 0.1);
        }
        TEST_CASE("basic usage") {
          SECTION("conversion") { CHECK(convert("a") == 17); REQUIRE_EQ(name(), "unit test"); }
        }
        """,
        {
            "format_test.format_nan": ['"  +nan"', '"one thing"', "true"],
            "basic usage > conversion": ["17", '"unit test"'],
        },
    ),
    "phpunit": Case(
        "tests/Routing/UrlGeneratorTest.php",
        """
        <?php
        class UrlGeneratorTest extends TestCase
        {
            public function testWhenPreviousIsCurrent(): void
            {
                $expected = 'http://left.com/right';
                $this->assertSame($expected, $this->url()->to('x'));
                self::assertEquals(12, count($this->url()));
                self::assertEquals('12', $this->text());
                $this->assertSame("of $expected", $this->url()->name());
                $this->assertNotSame('other', $this->url()->name());
            }
            /** @dataProvider provideNames */
            public function testNames(string $name, string $slug): void { $this->assertSame($slug, slug($name)); }
            public static function provideNames(): iterable
            {
                yield 'two words' => ['Two Words', 'two-words'];
                yield ['One', "one"];
            }
        }
        """,
        {
            "Url Generator > When previous is current": ["12"],  # the other is read in a string, too
            'Url Generator > Names with data set "two words"': ["'two-words'"],
            "Url Generator > Names with data set #1": ['"one"'],
        },
        ('Url Generator > Names with data set "three"',),
    ),
    "minitest": Case(
        "test/plugin/test_tail.rb",
        """
        class TestTail < Minitest::Test
          def test_position
            assert_equal "first line", read(1)
            assert_equal(-12, position)
            assert_includes lines, "part"
            expected = [1, 'alpha']
            assert_equal expected, pair
          end
          test "Do not retry" do
            assert_equal 'never again', state, "message"
            assert_equal "with #{state}", name
          end
        end
        """,
        {"test_position": ['"first line"', "-12", "'alpha'"], "Do not retry": ["'never again'"]},
    ),
    "rspec": Case(
        "spec/zip_spec.rb",
        """
        describe Zip do
          context "with a folder" do
            it "archives it" do
              expect(zip("a")).to eq "folder.zip"
              expect(zip("b").size).to eq(204)
              expect(zip("c")).not_to eq("other.zip")
              expect(zip("d")).to include("part")
            end
          end
        end
        """,
        {
            "archives it - ./spec/zip_spec.rb[1:1:1]": ['"folder.zip"', "204"],
            "Zip with a folder archives it": ['"folder.zip"', "204"],
        },
        ("archives it - ./spec/other_spec.rb[1:1:1]",),
    ),
}


def read_source(case: Case) -> bytes:
    return dedent(case.source).lstrip().encode()


def find_of(path: str, source: bytes, place: Place, **options: Any) -> list[Site]:
    sites = find_sites(path, source, **({"pass_to_pass": [place.name]} | options))
    return [site for site in sites if site.row is None or site.row in place.rows]


def locate(case: Case, *ids: str) -> dict[str, Place]:
    """Return the places of ids one by one: several ids of one test are ids of none."""
    places: dict[str, Place] = {}
    for test_id in ids:
        places |= locate_tests([test_id], {case.path: read_source(case)}, lambda node_id: node_id)
    return places


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_ids_locate_tests_and_sites(case: Case) -> None:
    places = locate(case, *case.sites)
    source = read_source(case)
    texts = {test: [site.text for site in find_of(case.path, source, place)] for test, place in places.items()}
    assert texts == case.sites
    assert all(site.strong for place in places.values() for site in find_of(case.path, source, place))


def test_unknown_ids_are_not_located(case: Case) -> None:
    assert locate(case, "no such test", *case.unknown) == {}


def test_ids_of_one_test_are_not_located() -> None:
    case = CASES["jest"]
    both = ["joins words", "slug words joins words"]
    assert locate_tests(both, {case.path: read_source(case)}, lambda node_id: node_id) == {}


def test_ambiguous_title_is_not_located() -> None:
    source = read_source(CASES["minitest"])
    assert locate_tests(["test_position"], {"a/test_a.rb": source, "b/test_b.rb": source}, str) == {}


def test_drawn_values_change_only_sites(case: Case) -> None:
    source, drawn = read_source(case), 0
    vocabulary = Vocabulary(source, case.path)
    for place in locate(case, *case.sites).values():
        for site in find_of(case.path, source, place):
            for text in {draw_value(site, vocabulary, Random(seed)) for seed in range(5)} - {None}:
                assert text is not None
                changed = apply_changes(source, [SiteChange(site, text)])
                assert text != site.text
                assert changed == cut_in(source, site, text.encode())
                drawn += 1
    assert drawn


def cut_in(source: bytes, site: Site, text: bytes) -> bytes:
    for start, end in reversed(site.spans):
        source = source[:start] + text + source[end:]
    return source


def test_ids_survive_a_change(case: Case) -> None:
    source = read_source(case)
    for test, place in locate(case, *case.sites).items():
        for site in find_of(case.path, source, place):
            assert rename_test(test, place, SiteChange(site, site.text), source, str) == test


def test_new_sites_are_on_added_lines() -> None:
    case = CASES["go test"]
    after = read_source(case)
    before = after.replace(b'"left-right"', b'"right"').replace(b'{name: "two words", in: "a b", want: 22},\n', b"")
    added = [at for at, line in enumerate(after.splitlines(), 1) if b"two words" in line or b'"left-right"' in line]
    names = {"TestCount": ["22"], "TestJoin": ['"left-right"']}
    for name, expected in names.items():
        place = Place(case.path, name)
        options = {"fail_to_pass": [name], "pass_to_pass": (), "added_lines": added, "base": before}
        sites = [site for site in find_sites(place.path, after, **options) if site.strong]  # type: ignore[arg-type]
        assert [site.text for site in sites] == expected
    assert "'right'" in sites[0].avoid


def test_old_row_values_are_avoided() -> None:
    case = CASES["go test"]
    after = read_source(case)
    before = after.replace(b"want: 22", b"want: 29")
    added = [at for at, line in enumerate(after.splitlines(), 1) if b"two words" in line]
    options = {"fail_to_pass": ["TestCount"], "added_lines": added, "base": before}
    assert [(site.text, site.avoid) for site in find_sites(case.path, after, **options)] == [("22", ("29",))]  # type: ignore[arg-type]


LITERALS = [
    ("a.js", "'it'", "'it'"),
    ("a.js", "`it`", '"it"'),
    ("a.js", '`say "it"`', "'say \"it\"'"),
    ("a.js", "`one\ntwo`", '"""one\ntwo"""'),
    ("a.js", "`${x}`", None),
    ("a.js", "'\\q'", None),
    ("a.js", "9007199254740993", None),
    ("a.js", "10n", "10"),
    ("a.go", "`a\\d`", None),
    ("a.go", '"a\\n"', '"a\\n"'),
    ("a.go", "'x'", "'x'"),
    ("a.go", "0755", None),
    ("a.rs", "1_000u32", "1_000"),
    ("a.rs", "1.5f32", "1.5"),
    ("a.rs", "0.12345678f32", None),
    ("a.rs", '"\\u{e9}"', None),
    ("a.rs", 'r#"it"#', '"it"'),
    ("a.rs", 'b"it"', None),
    ("a.java", "10L", "10"),
    ("a.java", "true", "True"),
    ("a.java", '"""\nblock"""', None),
    ("a.c", '"\\x41"', None),
    ("a.cc", "1'000", None),
    ("a.cc", "0x1Fu", "0x1F"),
    ("a.php", "'a\\nb'", None),
    ("a.php", '"of $name"', None),
    ("a.php", "'of $name'", "'of $name'"),
    ("a.rb", '"of #{name}"', None),
    ("a.rb", "%w[a]", None),
]


@pytest.mark.parametrize(("path", "text", "expected"), LITERALS)
def test_literals_are_translated(path: str, text: str, expected: str | None) -> None:
    language = find_language(path)
    assert language is not None
    python = to_python(language, text)
    assert python == expected
    if python is not None:
        assert from_python(language, text, python) == text


@pytest.mark.parametrize(
    ("path", "original", "literal", "expected"),
    [
        ("a.rs", "17u8", "99", "99u8"),
        ("a.rs", "255u8", "256", None),
        ("a.go", "'x'", "'xy'", None),
        ("a.php", '"a 1"', '"$a"', None),
        ("a.js", "`it`", '"is"', "`is`"),
        ("a.java", "true", "False", "false"),
        ("a.rs", 'r#"it"#', '"is"', 'r#"is"#'),
    ],
)
def test_values_keep_the_original_form(path: str, original: str, literal: str, expected: str | None) -> None:
    language = find_language(path)
    assert language is not None
    assert from_python(language, original, literal) == expected


@pytest.mark.parametrize("path", ["a.js", "a.go", "a.rs", "a.java", "a.c", "a.cc", "a.php", "a.rb", "a.ts"])
@pytest.mark.parametrize("source", [b"", b"\xff\xfe", b"func (((", b"[" * 5000, b"it('a', () => {" * 300])
def test_unreadable_files_have_no_sites(path: str, source: bytes) -> None:
    assert find_sites(path, source, pass_to_pass=["*", "a"]) == []
    assert locate_tests(["other"], {path: source}, str) == {}


def test_syntax_errors_have_no_sites() -> None:
    source = b"it('works', () => { expect(f(1)).toBe(2); expect(; });\nit('other', () => { expect(f(1)).toBe(3); });\n"
    assert find_sites("a.test.js", source, pass_to_pass=["works"]) == []


def test_parser_stops_at_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    source = b"it('works', () => { expect(f(1)).toBe(2); });\n" + b"f([1, {a: 2}]);\n" * 5000
    assert [site.text for site in find_sites("a.test.js", source, pass_to_pass=["works"])] == ["2"]
    monkeypatch.setattr(trees, "MOST_STEPS", -len(source))
    assert find_sites("a.test.js", source, pass_to_pass=["works"]) == []


def test_ten_languages_are_supported() -> None:
    assert all(map(is_supported, ["a.py", "a.js", "a.tsx", "a.go", "a.rs", "A.java", "a.c", "a.cpp", "A.php", "a.rb"]))
    assert not any(map(is_supported, ["a.snap", "a.tcl", "a.test", "Makefile", "a.txt"]))


def test_grammars_load_on_demand() -> None:
    code = "import sys, swe_argo.steps.grading.twins.ids as i; assert 'tree_sitter' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Real runs: the originals pass with the right code and the twins fail.


@dataclass(frozen=True)
class RealRun:
    """A test file with the code it tests, and how to run it."""

    path: str
    test: str
    files: Mapping[str, str]
    command: str
    parser: str
    tool: str


RUNS = {
    "go": RealRun(
        "text_test.go",
        """
        package text

        import "testing"

        func TestCount(t *testing.T) {
            for _, tt := range []struct{ name, in string; want int }{
                {"two words", "alpha beta", 2},
                {"three words", "alpha beta gamma", 3},
            } {
                t.Run(tt.name, func(t *testing.T) {
                    if got := Count(tt.in); got != tt.want {
                        t.Errorf("got %d, want %d", got, tt.want)
                    }
                })
            }
        }

        func TestUpper(t *testing.T) {
            if got := Upper("brown fox"); got != "BROWN FOX" {
                t.Fatalf("got %s", got)
            }
            if got := Upper("lazy dog"); got != "LAZY DOG" {
                t.Fatalf("got %s", got)
            }
        }
        """,
        {
            "go.mod": "module text\n\ngo 1.20\n",
            "text.go": 'package text\n\nimport "strings"\n\n'
            "func Count(s string) int { return len(strings.Fields(s)) }\n"
            "func Upper(s string) string { return strings.ToUpper(s) }\n",
        },
        "go test -v ./...",
        "parse_log_gotest",
        "go",
    ),
    "rust": RealRun(
        "text.rs",
        """
        fn double(number: u32) -> u32 { number * 2 }
        fn upper(text: &str) -> Option<String> { Some(text.to_uppercase()) }
        mod tests {
            use super::*;
            #[test]
            fn doubles() {
                assert_eq!(double(21), 42u32);
                assert_eq!(double(33), 66, "doubled {}", "once");
            }
            #[test]
            fn uppercases() {
                assert_eq!(upper("brown fox"), Some("BROWN FOX".to_string()));
                assert_eq!(upper("lazy dog"), Some("LAZY DOG".to_string()));
            }
        }
        """,
        {},
        "rustc --test text.rs -o tests 2>/dev/null && ./tests",
        "parse_log_cargo",
        "rustc",
    ),
    "node": RealRun(
        "text.test.js",
        """
        const { test } = require('node:test');
        const assert = require('node:assert');
        const upper = (text) => text.toUpperCase();
        test('uppercases words', () => {
          assert.strictEqual(upper('brown fox'), 'BROWN FOX');
          assert.deepStrictEqual([upper('lazy dog'), 3 * 13], ['LAZY DOG', 39]);
        });
        test('counts letters', () => {
          const expected = 29;
          assert.equal('quick jumping foxes leap over'.length, expected);
          assert.equal('brown fox jumps high over dogs'.length, 30);
        });
        """,
        {},
        "node --test --test-reporter=tap text.test.js",
        "parse_log_tap",
        "node",
    ),
    "gcc": RealRun(
        "test_text.c",
        """
        #include <assert.h>
        #include <string.h>
        static int twice(int number) { return 2 * number; }
        static const char *name(int number) { return number == 1 ? "brown fox" : "lazy dog"; }
        static void test_twice(void) { assert(twice(21) == 42); assert(twice(33) == 66); }
        static void test_name(void) {
            assert(strcmp(name(1), "brown fox") == 0);
            assert(strcmp(name(2), "lazy dog") == 0);
        }
        int main(int count, char **words) {
            (void)count;
            if (strcmp(words[1], "test_twice") == 0) test_twice(); else test_name();
            return 0;
        }
        """,
        {},
        "gcc -w test_text.c -o tests && for each in test_twice test_name; do"
        " (./tests $each 2>/dev/null) && echo pass $each || echo FAIL $each; done 2>/dev/null",
        "parse_log_micropython_test",
        "gcc",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_twins_fail_where_originals_pass(name: str, tmp_path: Path) -> None:
    case = RUNS[name]
    if shutil.which(case.tool) is None:
        pytest.skip(f"{case.tool} is not installed")
    source = dedent(case.test).lstrip().encode()
    for path, text in case.files.items():
        (tmp_path / path).write_text(text)
    before = run(case, source, tmp_path)
    assert before
    assert set(before.values()) == {"PASSED"}
    places = locate_tests(list(before), {case.path: source}, str)
    assert places.keys() == before.keys()
    sites = {test: find_of(case.path, source, place) for test, place in places.items()}
    drawn = {
        site: draw_value(site, Vocabulary(source, case.path), Random(1)) for group in sites.values() for site in group
    }
    changes = [SiteChange(site, text) for site, text in drawn.items() if text is not None]
    assert len(changes) >= 2
    for change in changes[:2]:
        after = run(case, apply_changes(source, [change]), tmp_path)
        twins = {test for test, own_sites in sites.items() if change.site in own_sites}
        assert after.keys() == before.keys()
        assert {test for test, status in after.items() if status == "FAILED"} == twins


def run(case: RealRun, source: bytes, folder: Path) -> dict[str, str]:
    (folder / case.path).write_bytes(source)
    result = subprocess.run(["bash", "-c", case.command], cwd=folder, capture_output=True, text=True, check=False)
    parser = swebench_harness.import_harness("grading").PARSER_REGISTRY[case.parser]
    statuses: dict[str, str] = parser(result.stdout, None)
    return statuses
