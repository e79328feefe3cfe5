from __future__ import annotations

from swe_argo.steps.reports.text.issue_blocks import IssueBlock, issue_blocks


def test_issue_blocks_keep_fenced_text() -> None:
    blocks = issue_blocks("```py\n# no heading\n- no item\n```\nafter\n~~~\nx\n```\ny")
    assert blocks == [
        IssueBlock("pre", text="# no heading\n- no item"),
        IssueBlock("p", [("", "after")]),
        IssueBlock("pre", text="x\n```\ny"),
    ]


def test_issue_blocks_are_parsed() -> None:
    blocks = issue_blocks("## A `b` ##\ntext **bold** and ``c``\nmore\n\n* one\n2. two\n> said\n> so\n\n    code\n")
    assert blocks == [
        IssueBlock("h", [("", "A "), ("code", "b")]),
        IssueBlock("p", [("", "text "), ("b", "bold"), ("", " and "), ("code", "c"), ("", "\nmore")]),
        IssueBlock("ul", items=[[("", "one")], [("", "two")]]),
        IssueBlock("quote", [("", "said\nso")]),
        IssueBlock("pre", text="code"),
    ]


def test_issue_blocks_show_all_text() -> None:
    text = "<!-- a comment -->\n<details>\n[a link](javascript:x) ![](y)\n#no heading\n\x1b[2J\u202e"
    [block] = issue_blocks(text)
    assert block.spans == [
        ("", "<!-- a comment -->\n<details>\n[a link](javascript:x) ![](y)\n#no heading\n␛[2J\\u202e")
    ]


def test_empty_issue_has_no_blocks() -> None:
    assert issue_blocks("") == issue_blocks("\n \n") == []
