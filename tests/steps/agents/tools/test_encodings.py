"""Files that are not plain UTF-8: edits keep every other byte."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swe_argo.steps.agents.tools.editor import Editor
from swe_argo.steps.agents.tools.files import RefusedError, decode
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.steps.agents.tools.test_editor import act, read_file, write_file

FILES = {
    "latin-1": ("latin-1", b"", "name = 'Müller'\nold = 'é'\n"),
    "latin-1, one character": ("latin-1", b"", "# by José\nold = 1\n"),
    "cp1252": ("cp1252", b"", "say = “Müller” … old €\n"),
    "utf-8": ("utf-8", b"", "say = '日本' old é\n"),
    "utf-8-sig": ("utf-8", b"\xef\xbb\xbf", "old é = 1\n"),
    "utf-16, little end first": ("utf-16-le", b"\xff\xfe", "old é = '日本'\r\nx\r\n"),
    "utf-16, big end first": ("utf-16-be", b"\xfe\xff", "old é = '日本'\nx\n"),
    "utf-32": ("utf-32-le", b"\xff\xfe\0\0", "old é\n"),
    "utf-16 without a mark": ("utf-16-le", b"", "Windows Registry old é\r\n"),
    "declared": ("euc_jp", b"", "#!/usr/bin/env python\n# -*- coding: euc-jp -*-\nold = '日本 é'\n"),
    "declared, Vim": ("cp1251", b"", "# vim: set fileencoding=cp1251 :\nold = 'Привет'\n"),
    "declared, Emacs": ("iso8859-15", b"", "# -*- coding: iso-8859-15-unix -*-\nold = '€'\n"),
    "declared, XML": ("iso8859-2", b"", '<?xml version="1.0" encoding="ISO-8859-2"?>\n<Łódź>old</Łódź>\n'),
    "declared, HTML": ("gbk", b"", '<html><head><meta charset="gbk"></head>\n<p>old 中文</p>\n'),
    "declared, in ASCII": ("iso2022_jp", b"", "# coding: iso-2022-jp\nold = '日本'\n"),
    "declared wrongly": ("utf-8", b"", "# coding: latin-1\nold = 'é 日本'\n"),
    "declared, unknown": ("utf-8", b"", "# coding: nonsense\nold = 'é'\n"),
}
NAMES = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252", "shift_jis"])
WRITTEN = st.tuples(st.text(max_size=80), NAMES).map(lambda pair: pair[0].encode(pair[1], "ignore"))
BOTH = pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])


@BOTH
@pytest.mark.parametrize("kind", ["host"], indirect=True)
@pytest.mark.parametrize(("name", "mark", "text"), FILES.values(), ids=FILES.keys())
def test_edits_keep_the_encoding(name: str, mark: bytes, text: str, ends: str, tidy: Sandbox) -> None:
    editor = Editor(tidy, 20.0)
    text = text.replace("\r\n", "\n").replace("\n", ends)
    before = mark + text.encode(name)
    write_file(editor, before)
    output = act(editor, "view")
    assert [line.partition("\t")[2] for line in output.splitlines()[1:]] == text.splitlines()
    act(editor, "str_replace", old_str="old", new_str="new")
    act(editor, "insert", insert_line=0, new_str="# more")
    assert read_file(editor) == mark + f"# more{ends}{text.replace('old', 'new')}".encode(name)
    act(editor, "undo_edit")
    act(editor, "undo_edit")
    assert read_file(editor) == before


@pytest.mark.parametrize("before", [b"# coding: latin-1\nold\n", "# coding: latin-1\nold ü\n".encode("latin-1")])
def test_additions_use_declared_encoding(tidy: Sandbox, before: bytes) -> None:
    editor = Editor(tidy, 20.0)
    write_file(editor, before)
    act(editor, "str_replace", old_str="old", new_str="é")
    assert read_file(editor) == before.replace(b"old", b"\xe9")
    act(editor, "str_replace", old_str="latin-1", new_str="utf-8")
    assert read_file(editor) == before.decode("latin-1").replace("old", "é").replace("latin-1", "utf-8").encode()
    act(editor, "undo_edit")
    assert read_file(editor) == before.replace(b"old", b"\xe9")
    act(editor, "create", "/testbed/new.py", file_text="# coding: latin-1\né = 1\n")
    assert read_file(editor, "/testbed/new.py") == b"# coding: latin-1\n\xe9 = 1\n"


def test_unencodable_text_is_refused(tidy: Sandbox) -> None:
    editor = Editor(tidy, 20.0)
    before = "ü old\n".encode("latin-1")
    write_file(editor, before)
    with pytest.raises(RefusedError, match="is written in latin-1, which has no '日本'"):
        act(editor, "str_replace", old_str="old", new_str="日本")
    assert read_file(editor) == before


@pytest.mark.parametrize(
    "data",
    [
        "é à ü 日本\n".encode() + b"one odd \xe9\nold\n",
        b"\x7fELF\x02\x01\0\0\xff\xd8 old \xff\xfe\n",
        b"\xff\xfe\0\r\nold\n",
        b"\xef\xbb\xbfold \xff \xc3\xa9\n",
        b"\x81\x8d old\n",
    ],
    ids=["utf-8 with an odd byte", "binary", "half of utf-16", "utf-8-sig with an odd byte", "no code page"],
)
def test_undecodable_bytes_stay(tidy: Sandbox, data: bytes) -> None:
    editor = Editor(tidy, 20.0)
    write_file(editor, data)
    assert "\ufffd" in act(editor, "view")
    act(editor, "str_replace", old_str="old", new_str="né")
    assert read_file(editor) == data.replace(b"old", "né".encode())


@given(st.one_of(st.binary(max_size=200), WRITTEN))
@example(b"# coding: unicode_escape\n\\u00e9")
@example(b"# coding: utf-7\n+AOk-")
@example(b"# coding: hex\n00")
@example(b"# coding: utf-8-sig\nx")
@example(b'<?xml encoding="utf-16"?>')
def test_decoding_round_trips(data: bytes) -> None:
    text, encoding = decode(data)
    assert encoding.encode(text) == data
    assert encoding.after_edit(text, text) == encoding
