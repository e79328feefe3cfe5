from __future__ import annotations

from swe_argo.steps.reports.text.issue_blocks import IssueBlock, issue_blocks


def test_fences_hold_their_text_as_it_is_and_one_that_stays_open_reaches_to_the_end() -> None:
    blocks = issue_blocks("```py\n# no heading\n- no item\n```\nafter\n~~~\nx\n```\ny")
    assert blocks == [
        IssueBlock("pre", text="# no heading\n- no item"),
        IssueBlock("p", [("", "after")]),
        IssueBlock("pre", text="x\n```\ny"),
    ]


def test_headings_lists_quotes_and_spans_are_told_apart() -> None:
    blocks = issue_blocks("## A `b` ##\ntext **bold** and ``c``\nmore\n\n* one\n2. two\n> said\n> so\n\n    code\n")
    assert blocks == [
        IssueBlock("h", [("", "A "), ("code", "b")]),
        IssueBlock("p", [("", "text "), ("b", "bold"), ("", " and "), ("code", "c"), ("", "\nmore")]),
        IssueBlock("ul", items=[[("", "one")], [("", "two")]]),
        IssueBlock("quote", [("", "said\nso")]),
        IssueBlock("pre", text="code"),
    ]


def test_nothing_of_the_text_is_hidden() -> None:
    text = "<!-- a comment -->\n<details>\n[a link](javascript:x) ![](y)\n#no heading\n\x1b[2J\u202e"
    [block] = issue_blocks(text)
    assert block.spans == [
        ("", "<!-- a comment -->\n<details>\n[a link](javascript:x) ![](y)\n#no heading\n␛[2J\\u202e")
    ]


def test_nothing_makes_nothing() -> None:
    assert issue_blocks("") == issue_blocks("\n \n") == []
