"""Titles: the tests of ids in other languages than Python, found by the titles of groups and tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from swe_argo.steps.grading.twins.languages import Language
from swe_argo.steps.grading.twins.reader import WHOLE_FILE, ParsedFile
from swe_argo.steps.grading.twins.sites import TestPlace


class TitleIndex:
    """An index of tests by the titles in the ids of most runners, without punctuation and case.

    An id may begin with a part of the path or with any of the titles, but ends with the test's own. The id of a group
    or a file stands for all its tests.
    """

    def __init__(self, files: Mapping[str, ParsedFile]) -> None:
        self.tests: dict[str, set[TestPlace]] = defaultdict(set)
        self.groups: dict[str, set[TestPlace]] = defaultdict(set)
        for path, file in files.items():
            for test in file.tests:
                place = TestPlace(path, test.name, tuple(sorted(test.rows, key=lambda row: (row.decorator, row.index))))
                is_rendered = any(row.is_rendered for row in test.rows.values())
                is_class = test.name == WHOLE_FILE and file.language.containers  # its id is the class's
                for form in () if is_rendered or is_class else _list_forms(file.language, path, test.titles):
                    (self.groups if test.is_group else self.tests)[form].add(place)
                titled = defaultdict(list)
                for key in place.rows:
                    if title := test.rows[key].title:
                        titled[title].append(key)
                for title, rows in titled.items():
                    # A title of `test.each` replaces the test's; other titles of rows follow it.
                    titles = (*test.titles[:-1], title) if is_rendered else (*test.titles, title)
                    for form in _list_forms(file.language, path, titles):
                        self.tests[form].add(TestPlace(path, test.name, tuple(rows)))

    def locate(self, test: str) -> TestPlace | None:
        """Return the only place of an id; None if there are none or several."""
        description = re.fullmatch(r"(.+) - \./(\S+)\[[\d:]+\]", test)  # the format of RSpec that swebench sets
        folded = _fold(description[1] if description else test.replace("#test_: ", " "))
        for index in (self.tests, self.groups):
            places = {place for place in index.get(folded, ()) if not description or place.path == description[2]}
            if places:
                return places.pop() if len(places) == 1 else None
        return None


def _list_forms(language: Language, path: str, titles: Sequence[str | None]) -> set[str]:
    """Return the forms in which ids may show a test: its last titles, or a part of the path and all titles."""
    trimmed = [re.sub(language.trims, "", title or "") for title in titles]
    forms = {_fold("".join(trimmed[at:])) for at in range(len(trimmed)) if None not in titles[at:]}
    if None in titles:
        return forms
    *folders, file = path.split("/")
    for name in (file, file.partition(".")[0], ""):
        parts = [*folders, name] if name not in ("mod", "lib", "main", *titles[:1]) else folders
        forms |= {_fold("".join([*parts[at:], *trimmed])) for at in range(len(parts))}
    return forms - {""}


def _fold(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return "".join(letter for letter in text.lower() if letter.isalnum())
