from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents.tools.outline import outline

CODE = '''class A:
    """One.

    Two
    three
    four"""

    def long(self):
        a = 1
        def inner():
            b = 1
            b = 2
            b = 3
            b = 4
        return a

    def short(self): return 1
'''


def test_outline_omits_long_bodies() -> None:
    lines = outline(CODE)
    assert lines is not None
    assert lines == [
        (1, "class A:"),
        (2, '    """One.'),
        (3, "... lines 3-5 are left out ..."),
        (6, '    four"""'),
        (7, ""),
        (8, "    def long(self):"),
        (9, "... lines 9-15 are left out ..."),
        (16, ""),
        (17, "    def short(self): return 1"),
        (18, ""),
    ]


@settings(deadline=None)
@given(st.text())
def test_outline_survives_any_text(text: str) -> None:
    lines = outline(text)
    assert lines is None or [number for number, _ in lines] == sorted({number for number, _ in lines})
