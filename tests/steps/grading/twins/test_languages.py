from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from textwrap import dedent
from typing import Any

import pytest

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
            "routing::tests::words::counts_words": ["21u32", '"long name"', "true", "1_000", "-17", "111", "222"],
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
    places, source = locate(case, *case.sites), read_source(case)
    sites = {test: find_of(case.path, source, place) for test, place in places.items()}
    assert {test: [site.text for site in found_sites] for test, found_sites in sites.items()} == case.sites
    assert all(site.strong for found_sites in sites.values() for site in found_sites)
    assert locate(case, "no such test", *case.unknown) == {}
    for test, place in places.items():
        for site in sites[test]:
            assert rename_test(test, place, SiteChange(site, site.text), source, str) == test


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
            for text in {draw_value(site, vocabulary, Random(seed)) for seed in range(3)} - {None}:
                assert text is not None
                assert text != site.text
                expected = source
                for start, end in reversed(site.spans):
                    expected = expected[:start] + text.encode() + expected[end:]
                assert apply_changes(source, [SiteChange(site, text)]) == expected
                drawn += 1
    assert drawn


@pytest.mark.parametrize("test", [("TestCount", ["22"]), ("TestJoin", ['"left-right"'])], ids=str)
def test_new_sites_are_on_added_lines(test: tuple[str, list[str]]) -> None:
    name, expected = test
    after = read_source(CASES["go test"])
    before = after.replace(b'"left-right"', b'"right"').replace(b'{name: "two words", in: "a b", want: 22},\n', b"")
    sites = [site for site in find_new(name, after, before) if site.strong]
    assert [site.text for site in sites] == expected
    assert name == "TestCount" or "'right'" in sites[0].avoid


def test_old_row_values_are_avoided() -> None:
    after = read_source(CASES["go test"])
    sites = find_new("TestCount", after, after.replace(b"want: 22", b"want: 29"), b"two words")
    assert [(site.text, site.avoid) for site in sites] == [("22", ("29",))]


def find_new(name: str, after: bytes, before: bytes, *marks: bytes) -> list[Site]:
    marks = marks or (b"two words", b'"left-right"')
    added = [at for at, line in enumerate(after.splitlines(), 1) if any(mark in line for mark in marks)]
    return find_sites(CASES["go test"].path, after, fail_to_pass=[name], added_lines=added, base=before)


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
    assert language
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
    assert language
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
    source = b"it('works', () => { expect(f(1)).toBe(2); });\n" + b"f([1, {a: 2}]);\n" * 500
    assert [site.text for site in find_sites("a.test.js", source, pass_to_pass=["works"])] == ["2"]
    monkeypatch.setattr(trees, "MOST_STEPS", -len(source))
    assert find_sites("a.test.js", source, pass_to_pass=["works"]) == []


def test_ten_languages_are_supported() -> None:
    assert all(map(is_supported, ["a.py", "a.js", "a.tsx", "a.go", "a.rs", "A.java", "a.c", "a.cpp", "A.php", "a.rb"]))
    assert not any(map(is_supported, ["a.snap", "a.tcl", "a.test", "Makefile", "a.txt"]))


def test_grammars_load_on_demand() -> None:
    code = "import sys, swe_argo.steps.grading.twins.ids as i; assert 'tree_sitter' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
