from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.contracts.data import FileContext
from swe_argo.steps.families import retrieval
from tests.steps.agents import swebench_inference

ISSUE = {"problem_statement": "It breaks.", "patch": ""}


def paths(row: dict[str, Any]) -> list[str] | None:
    files = retrieval.file_context(ISSUE | row, "style-3")
    return None if files is None else [file.path for file in files]


@pytest.mark.parametrize(
    "column",
    [
        {"hits": [{"docid": "b.py", "score": 2.5}, {"docid": "a.py", "score": 1.0}]},
        {"hits": json.dumps([{"docid": "b.py", "score": 2.5}, {"docid": "a.py", "score": 1.0}])},
        {"retrieved_files": ["b.py", "a.py"]},
        {"file_contents": {"b.py": "x", "a.py": "y", "of_another_row.py": None}},
        {"file_contents": json.dumps({"b.py": "x", "a.py": "y"}), "hits": [{"docid": "cut_off.py"}]},
    ],
)
def test_retrieved_files_keep_their_order(column: dict[str, Any]) -> None:
    assert paths(column) == ["b.py", "a.py"]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"hits": []},
        {"hits": "not JSON"},
        {"text": "a text about something else"},
        {"file_contents": {}},
        {"text": 7},
    ],
)
def test_row_without_files_has_no_context(row: dict[str, Any]) -> None:
    assert paths(row) is None


def test_contents_and_readmes_stay_apart() -> None:
    row = ISSUE | {"file_contents": {"README.md": "shown again"}, "readmes": {"README.md": "first"}}
    assert retrieval.file_context(row, "style-2") == [
        FileContext(path="README.md", text="first", readme=True),
        FileContext(path="README.md", text="shown again"),
    ]


CONTENT = st.text(
    st.one_of(st.sampled_from("ab \n]["), st.characters(exclude_categories=["Cs"])), max_size=40
) | st.just("[end of a.py]\n</code>\n[start of b.py]")


@settings(max_examples=150, deadline=None)
@given(
    readmes=st.dictionaries(st.sampled_from(["README", "README.md", "readme.txt"]), CONTENT, max_size=2),
    contents=st.dictionaries(st.sampled_from(["README.rst", "a.py", "b/c.py", "z.py"]), CONTENT, min_size=1),
    issue=CONTENT | st.just("see\n</issue>\n\n<code>\n[start of x.py]\n1 y\n[end of x.py]\n</code>\n"),
)
def test_prompt_text_yields_its_files(readmes: dict[str, str], contents: dict[str, str], issue: str) -> None:
    row = {"problem_statement": issue, "patch": "", "readmes": readmes, "file_contents": contents}
    text = swebench_inference.text_column("style-3", row)
    files = retrieval.file_context({"problem_statement": issue, "patch": "", "text": text}, "style-3")
    assert files is not None
    again = {
        "problem_statement": issue,
        "readmes": {file.path: file.text for file in files if file.readme},
        "file_contents": {file.path: file.text for file in files if not file.readme},
    }
    assert swebench_inference.text_column("style-3", again) == text
    if not set(contents) & {"README.rst"}:
        assert (again["readmes"], again["file_contents"]) == (readmes, contents)


def test_unnumbered_prompt_is_not_parsed() -> None:
    row = {"problem_statement": "p", "patch": "", "readmes": {}, "file_contents": {"a.py": "x"}}
    assert paths({"text": swebench_inference.text_column("full_file_gen", row)}) is None


def test_notices_name_leaks() -> None:
    row = ISSUE | {"hits": [{"docid": "a.py"}]}
    assert retrieval.notices("verified", "style-3", [row]) == []
    (leak,) = retrieval.notices("verified", "style-2-edits-only", [row])
    assert "which lines the reference patch touches" in leak
    (leak,) = retrieval.notices("princeton-nlp/SWE-bench_oracle", "style-3", [row])
    assert "which files the reference patch touches" in leak
    (missing,) = retrieval.notices("mini", "style-3", [row, ISSUE])
    assert missing.startswith("1 of 2 rows have no retrieved files")
