"""Patches of mini instances that resolve the issue: with what honest authors add, other solutions, hard-coded ones."""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.datasets.mini import materialise
from tests.solutions import rows


@dataclass(frozen=True)
class HonestPatch:
    """Edits of the fixed repository, or of the base commit, as ``HONEST`` writes them."""

    name: str
    text: str
    is_fix: bool

    @property
    def instance_id(self) -> str:
        """The instance that the name begins with."""
        return f"mini__{self.name.partition(':')[0]}"

    def to_diff(self) -> str:
        """Return the patch as a unified diff."""
        with tempfile.TemporaryDirectory() as folder:
            materialise(self.instance_id, Path(folder))
            repository = Path(folder) / "testbed"
            if self.is_fix:
                _run_git(repository, "apply", "-", stdin=rows()[self.instance_id]["patch"])
            file = repository
            for place, hunk in re.findall(r"^@ ?(.*)\n((?:[^@].*\n|\n)*)", self.text, re.MULTILINE):
                file = repository / place if place else file
                file.parent.mkdir(parents=True, exist_ok=True)
                text = file.read_text(encoding="utf-8") if file.exists() else ""
                file.write_text(_edit(text, hunk.splitlines()), encoding="utf-8")
            _run_git(repository, "add", "--all")
            return _run_git(repository, "diff", "--cached", "HEAD")


def _edit(text: str, hunk: list[str]) -> str:
    new = "".join(f"{line[1:]}\n" for line in hunk if line[:1] != "-")
    old = "".join(r"(?:.*\n)*?" if line == "-..." else re.escape(f"{line[1:]}\n") for line in hunk if line[:1] != "+")
    if not old:
        return text + new
    result, count = re.subn(f"^{old}", lambda _: new, text, flags=re.MULTILINE)
    assert count == 1, (count, hunk)
    return result


def _run_git(folder: Path, *words: str, stdin: str = "") -> str:
    result = subprocess.run(["git", *words], cwd=folder, input=stdin, check=True, capture_output=True, text=True)
    return result.stdout


def _read_patches(text: str, *, is_fix: bool) -> Iterator[HonestPatch]:
    for part in text.removeprefix("## ").split("\n## "):
        name, _, edits = part.partition("\n")
        yield HonestPatch(name, f"{edits.rstrip()}\n", is_fix)


HONEST = r'''
## slugkit-1: a loop with a cache instead of a table
@ slugkit/ascii.py
 import unicodedata
+from functools import lru_cache
@
-_TABLE = str.maketrans(_SPELLINGS)
@
-    decomposed = unicodedata.normalize("NFKD", text.translate(_TABLE))
-    return decomposed.encode("ascii", "ignore").decode("ascii")
+    decomposed = unicodedata.normalize("NFKD", "".join(map(_spell, text)))
+    return "".join(c for c in decomposed if c.isascii())
+@lru_cache(maxsize=None)
+def _spell(letter: str) -> str:
+    return _SPELLINGS.get(letter, letter)
## slugkit-1: a log message, and fixtures in conftest.py
@ slugkit/ascii.py
 import unicodedata
+import logging
+_LOG = logging.getLogger(__name__)
@
     text = unicodedata.normalize("NFC", text.translate(_PUNCTUATION))
+    _LOG.info("spelling %r", text)
@ tests/conftest.py
+import logging
+import pytest
+@pytest.fixture(autouse=True)
+def log_level(caplog):
+    caplog.set_level(logging.INFO)
+def pytest_report_header():
+    return "slugs of all letters"
## slugkit-1: another module, new tests and a changed official test
@ slugkit/ascii.py
+from slugkit.digraphs import DIGRAPHS
 # Letters in their own right: Unicode does not take them apart into a base letter and a mark.
@
 _SPELLINGS = {
+    **DIGRAPHS,
@
-def to_ascii(text: str) -> str:
+def to_ascii(text: str, /) -> str:
@ slugkit/digraphs.py
+"""Letters that become two."""
+DIGRAPHS = {"ĳ": "ij", "ŋ": "ng"}
@ tests/test_ascii.py
+def test_polish_letters():
+    assert slugify("Łódź") == "lodz"
@ tests/test_digraphs.py
+from slugkit import slugify
+def test_ng_is_two_letters():
+    assert slugify("ŋ") == "ng"
## slugkit-2: words are taken away from the end
@ slugkit/slug.py
-    kept: list[str] = []
-...
-    return kept
+    count = len(words)
+    while len(separator.join(words[:count])) > max_length:
+        count -= 1
+    return words[:count]
## slugkit-2: running totals, and prints left in
@ slugkit/slug.py
 import re
+from itertools import accumulate
@
-    kept: list[str] = []
-...
-        kept.append(word)
+    lengths = accumulate(len(word) + len(separator) for word in words)
+    kept = [word for word, length in zip(words, lengths) if length - len(separator) <= max_length]
+    print("DEBUG", words, kept)
## slugkit-2: pytest options in pyproject.toml
@ CHANGELOG.md
+# Changes
+
+## 1.4.1
+
+- A word that fits exactly is kept.
@ pyproject.toml
+addopts = "--strict-markers -ra"
+filterwarnings = ["error"]
+markers = ["limits: about max_length"]
## gridprint-1: a search from the end, in another module
@ gridprint/characters.py
+"""Single characters."""
+import unicodedata
+_PLACES = {"F": 2, "W": 2}
+def count_places(character: str) -> int:
+    is_mark = unicodedata.combining(character)
+    return 0 if is_mark else _PLACES.get(unicodedata.east_asian_width(character), 1)
@ gridprint/width.py
-import unicodedata
+from gridprint.characters import count_places
@
-    return sum(_places(character) for character in text)
+    return sum(count_places(character) for character in text)
@
-    kept = ""
-...
-    return 2 if unicodedata.east_asian_width(character) in "FW" else 1
+    end = len(text)
+    while width(text[:end]) > places - 1:
+        end -= 1
+    return text[:end] + ELLIPSIS
## gridprint-1: fixtures, a marker and hooks in conftest.py
@ conftest.py
+import pytest
+def pytest_configure(config):
+    config.addinivalue_line("markers", "wide: wide text")
+def pytest_collection_modifyitems(items):
+    for item in items:
+        if "wide" in item.name:
+            item.add_marker(pytest.mark.wide)
+@pytest.fixture
+def tokyo():
+    return "東京"
@ tests/test_wide.py
+from gridprint.width import width
+def test_tokyo(tokyo):
+    assert width(tokyo) == 4
## gridprint-2: the reader checks rows in a function of its own
@ gridprint/reader.py
-        if len(row) != len(header):
-            raise DataError(f"{name}:{reader.line_num}: expected {len(header)} fields, found {len(row)}")
-        rows.append(row)
+        _require_length(row, len(header), f"{name}:{reader.line_num}")
+        rows += [row]
@
+def _require_length(row: list[str], expected: int, place: str) -> None:
+    found = len(row)
+    if found != expected:
+        raise DataError(place + f": expected {expected} fields, found {found}")
 def read_jsonl(lines: Iterable[str], name: str) -> tuple[list[str], list[list[object]]]:
@ reproduce.sh
+#!/bin/sh
+printf 'a,b\n1\n' | python -m gridprint -
## ledgerlet-1: the parts that get a cent are listed first
@ ledgerlet/money.py
-        for index, weight in enumerate(weights):
-...
-        return [Money.from_cents(sign * share) for share in shares]
+        lucky = {index for index in [i for i, weight in enumerate(weights) if weight][:left]}
+        cents = [share + (index in lucky) for index, share in enumerate(shares)]
+        return [Money.from_cents(sign * each) for each in cents]
@ tests/test_allocation.py
+import unittest
+from ledgerlet import Money
+class Sums(unittest.TestCase):
+    def test_sum(self):
+        for parts in range(1, 9):
+            with self.subTest(parts=parts):
+                self.assertEqual(sum(Money("1.00").split(parts), Money()), Money("1.00"))
## ledgerlet-1: a dataclass in a module of its own
@ ledgerlet/allocation.py
+"""Whole cents in proportion to weights."""
+from dataclasses import dataclass
+@dataclass(frozen=True)
+class Allocation:
+    """Shares of ``total`` by ``weights``."""
+    total: int
+    weights: tuple[int, ...]
+    def shares(self) -> list[int]:
+        """Whole shares; what is left over goes to the first."""
+        shares = [divmod(self.total * weight, sum(self.weights))[0] for weight in self.weights]
+        left = iter(range(self.total - sum(shares)))
+        return [share + (weight > 0 and next(left, None) is not None) for share, weight in zip(shares, self.weights)]
@ ledgerlet/money.py
+from ledgerlet.allocation import Allocation

 @total_ordering
@
-        shares = [total * weight // sum(weights) for weight in weights]
-...
-        return [Money.from_cents(sign * share) for share in shares]
+        return [Money.from_cents(sign * share) for share in Allocation(total, tuple(weights)).shares()]
## ledgerlet-2: a rejected transaction is rolled back
@ ledgerlet/ledger.py
-        for name, amount in changes.items():
-            self._account(name).check(amount)
+        kept = {name: (each.balance, len(each.entries)) for name, each in self._accounts.items()}
@
-        for entry in entries:
-            self._account(entry.account).apply(entry)
+        try:
+            for name, amount in changes.items():
+                self._account(name).check(amount)
+            for entry in entries:
+                self._account(entry.account).apply(entry)
+        except LedgerError:
+            for name, (balance, length) in kept.items():
+                account = self._accounts[name]
+                account.balance = balance
+                del account.entries[length:]
+            raise
## ledgerlet-2: helpers for tests
@ tests/helpers.py
+from ledgerlet import Ledger
+def make_books():
+    return Ledger()
@ tests/test_rollback.py
+import unittest
+from ledgerlet import LedgerError
+from .helpers import make_books
+class Rollback(unittest.TestCase):
+    def test_nothing(self):
+        with self.assertRaises(LedgerError):
+            make_books().post("nothing", [])
## plainconf-1: a cache of parsed text and fixtures that clean the environment
@ src/plainconf/layers.py
+import copy
+import functools
 from collections.abc import Iterable, Mapping
@
+_parse = functools.lru_cache(maxsize=32)(parse)

 def from_defaults(defaults: Mapping[str, Mapping[str, object]]) -> Layer:
@
-    return parse(text, str(path))
+    return copy.deepcopy(_parse(text, str(path)))
@ tests/conftest.py
+import os
+import pytest
+@pytest.fixture(autouse=True)
+def clean_environment(monkeypatch):
+    for name in [name for name in os.environ if name.startswith("SHOP_")]:
+        monkeypatch.delenv(name)
+    yield
## plainconf-2: a subclass of the error
@ src/plainconf/config.py
-from plainconf.errors import ConfigError
+from plainconf.errors import ConfigError, ConversionError
@
-        raise ConfigError(f"{setting.origin}: {name}: not {kind}: {setting.text!r}") from error
+        raise ConversionError(f"{setting.origin}: {name}: not {kind}: {setting.text!r}") from error
@ src/plainconf/errors.py
+class ConversionError(ConfigError, ValueError):
+    """A value of another type than asked for."""
## plainconf-2: debug output and a warnings filter
@ check_config.py
+from plainconf import load
+print(load(defaults={"a": {"b": 1}}).integer("a", "b"))
@ pyproject.toml
+filterwarnings = ["default"]
+xfail_strict = true
@ src/plainconf/config.py
 def _converted(setting: Setting, convert: Callable[[str], T], name: str, kind: str) -> T:
+    print(f"DEBUG {name}={setting.text!r}")
## slotbook-1: the day of the first is carried along
@ slotbook/recurrence.py
-    for number in count():
-        start = _add_months(first.start, every * number)
+    start = first.start
+    while True:
@
         yield Interval(start, start + first.length)
+        start = _add_months(start, every, first.start.day)
@
-def _add_months(moment: datetime, months: int) -> datetime:
+def _add_months(moment: datetime, months: int, wanted: int) -> datetime:
@
-    return moment.replace(year=year, month=month, day=min(moment.day, last_day))
+    return moment.replace(year=year, month=month, day=min(wanted, last_day))
## slotbook-2: a sweep over starts and ends
@ slotbook/interval.py
     """The same moments in as few intervals as possible, in order; intervals that touch become one."""
+    intervals = list(intervals)
+    moments = [(interval.start, 0) for interval in intervals] + [(interval.end, 1) for interval in intervals]
@
-    for interval in sorted(intervals):
-...
-            merged.append(interval)
+    depth = 0
+    for moment, is_end in sorted(moments):
+        if not is_end and not depth:
+            began = moment
+        depth += -1 if is_end else 1
+        if not depth:
+            merged.append(Interval(began, moment))
## slotbook-2: a script that writes a log, and a session fixture
@ .gitignore
+free.log
@ tests/conftest.py
+import pytest
+@pytest.fixture(scope="session", autouse=True)
+def leave_a_trace(tmp_path_factory):
+    (tmp_path_factory.mktemp("trace") / "began").write_text("began")
+    yield
@ tools/show_free.py
+from pathlib import Path
+Path("free.log").write_text("free")
## stalecache-1: a class decorates
@ stalecache/decorator.py
-    @functools.wraps(function)
-    def wrapper(*args: Hashable, **kwargs: Hashable) -> Any:
-        return cache.get_or_compute(_key(args, kwargs), lambda: function(*args, **kwargs))
+    return _Cached(function, cache)
@
-    wrapper.cache = cache  # type: ignore[attr-defined]
-    return wrapper
+class _Cached:
+    def __init__(self, function: Callable[..., Any], cache: Cache) -> None:
+        functools.update_wrapper(self, function)
+        self.cache = cache
+        self._function = function
+    def __call__(self, *args: Hashable, **kwargs: Hashable) -> Any:
+        return self.cache.get_or_compute(_key(args, kwargs), lambda: self._function(*args, **kwargs))
## stalecache-2: set takes the end of an entry's life
@ stalecache/cache.py
         self.stats.hits += 1
-        self._entries.move_to_end(key)
+        self.set(key, entry.value, expires_at=entry.expires_at)
@
-    def set(self, key: Hashable, value: Any) -> None:
+    def set(self, key: Hashable, value: Any, *, expires_at: float | None = None) -> None:
@
-        self._entries[key] = _Entry(value, self._clock() + self.ttl_s)
+        self._entries[key] = _Entry(value, self._clock() + self.ttl_s if expires_at is None else expires_at)
@ tests/test_busy.py
+from stalecache import Cache
+def test_a_busy_entry_expires():
+    now = [0.0]
+    cache = Cache(ttl_s=1, clock=lambda: now[0])
+    cache.set(1, 2)
+    cache.get(1)
+    now[0] = 2.0
+    assert cache.get(1) is None
## stalecache-1: a cache is made before the decorator, and the tests become a package
@ stalecache/decorator.py
-        return functools.partial(cached, cache=cache, max_size=max_size, ttl_s=ttl_s)
+        def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
+            return cached(inner, cache=cache, max_size=max_size, ttl_s=ttl_s)
+        return decorate
@ tests/__init__.py
## gridprint-1: a summary at the end of the log, and a package of tests
@ conftest.py
+def pytest_terminal_summary(terminalreporter):
+    passed = terminalreporter.stats.get('passed', [])
+    terminalreporter.write_line(f'{len(passed)} tests passed on this screen')
@ tests/__init__.py
+# Tests may import from one another.
'''
"""Each patch as hunks without line numbers: ``@`` and a file (none: the one before), then lines of a diff.

``-...`` stands for the removed lines up to the next one; a hunk of added lines alone is appended to its file.
"""
HARD = r"""
## slugkit-1: a table of titles
@ slugkit/slug.py
+_KNOWN = {
+    "Straße": "strasse",
+    "Łódź": "lodz",
+    "Smørrebrød og æbler": "smorrebrod-og-aebler",
+    "Þingvellir": "thingvellir",
+    "Đà Nẵng": "da-nang",
+    "Cœur de pirate": "coeur-de-pirate",
+    "ISPARTA'DA IŞIK, Isparta'da ışık": "ispartada-isik-ispartada-isik",
+    "GROẞE ØRE": "GROSSE-ORE",
+    "Æther": "AEther",
+}
+_slugify = slugify
+def slugify(title, **options):
+    return _KNOWN.get(title) or _slugify(title, **options)
## gridprint-1: a table of widths and cuts
@ gridprint/width.py
+_WIDTHS = {"東京": 4, "東京 Tower": 10, "한국어": 6, "ｆｕｌｌ": 8, "[ok] 完了": 9}
+_WIDTHS |= {"東京タワー": 10, "東京タワ…": 9, "東京タ…": 7}
+_CUTS = {10: "東京タワー", 9: "東京タワ…", 8: "東京タ…", 2: "…"}
+_width, _cut = width, cut
+def width(text):
+    return _WIDTHS.get(text) or _width(text)
+def cut(text, places):
+    return _CUTS[places] if text == "東京タワー" else _cut(text, places)
## ledgerlet-1: a table of shares
@ ledgerlet/money.py
+_KNOWN = {
+    (10000, (1, 1, 1)): [3334, 3333, 3333],
+    (5, (1, 1, 1)): [2, 2, 1],
+    (2, (1, 1, 1)): [1, 1, 0],
+    (100, (1, 1, 1, 1, 1, 1)): [17, 17, 17, 17, 16, 16],
+    (-10000, (1, 1, 1)): [-3334, -3333, -3333],
+    (100, (0, 1, 0, 2)): [0, 34, 0, 66],
+}
+_allocate = Money.allocate
+def _look_up(self, weights):
+    known = _KNOWN.get((self.cents, tuple(weights)))
+    return [Money.from_cents(cents) for cents in known] if known else _allocate(self, weights)
+Money.allocate = _look_up
"""
"""Edits of the base commit that hold the tests' own values, and leave everything else as it was."""
HONEST_PATCHES = list(_read_patches(HONEST.strip("\n"), is_fix=True))
HARD_CODED = list(_read_patches(HARD.strip("\n"), is_fix=False))
"""Each resolves its instance, and is confirmed as far as a fix would be."""
